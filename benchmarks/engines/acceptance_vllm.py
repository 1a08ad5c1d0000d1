"""Answers of one vLLM engine with a draft model, for acceptance.py. Runs in a Python with vLLM.

python acceptance_vllm.py ASKED.json TOLD.json
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

COUNTS = {"drafted": "vllm:spec_decode_num_draft_tokens", "accepted": "vllm:spec_decode_num_accepted_tokens"}


def counts(llm: Any) -> dict[str, int]:
    held = {metric.name: metric.value for metric in llm.get_metrics() if metric.name in COUNTS.values()}
    return {name: int(held.get(metric, 0)) for name, metric in COUNTS.items()}


def main(asked: Path, told: Path) -> None:
    given = json.loads(asked.read_text(encoding="utf-8"))
    os.environ.update(
        VLLM_ENABLE_V1_MULTIPROCESSING="0",
        VLLM_CPU_KVCACHE_SPACE="1",
        VLLM_CPU_OMP_THREADS_BIND="nobind",
        VLLM_LOGGING_LEVEL="ERROR",
        OMP_NUM_THREADS=str(given["threads"]),
    )
    import vllm

    drafts = {"method": "draft_model", "model": given["draft"], "num_speculative_tokens": given["length"]}
    llm = vllm.LLM(
        model=given["model"],
        dtype="float32",
        max_model_len=1024,
        max_num_seqs=1,
        enforce_eager=True,
        enable_prefix_caching=False,
        disable_log_stats=False,
        speculative_config=drafts,
    )
    sampling = vllm.SamplingParams(temperature=0.0, max_tokens=given["new"], detokenize=False)
    found: dict[str, list[Any]] = {"drafted": [], "accepted": [], "ids": []}
    before = counts(llm)
    for prompt in given["prompts"]:
        answer = llm.generate([{"prompt_token_ids": prompt}], sampling, use_tqdm=False)
        found["ids"].append(list(answer[0].outputs[0].token_ids))
        after = counts(llm)
        for name in COUNTS:
            found[name].append(after[name] - before[name])
        before = after
    told.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    del sys.path[0]  # this folder, whose files must not stand for packages
    main(Path(sys.argv[1]), Path(sys.argv[2]))
