"""vLLM, its engine stepped in this process: plain decoding, and its n-gram speculation.

Left alone it keeps one core for its scheduler, which leaves one thread of two; so its threads are bound to as many cores as
others have. settings["environment"] overrides that, as any variable that it is set up by. Intel's OpenMP, which it brings
and asks for, is loaded first.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

MODES = {"plain": "", "ngram": "up to 4-grams, 5 tokens", "ngram-3": "up to 4-grams, 3 tokens"}
MODEL = "hf"


def environment(threads: int, own: dict[str, str]) -> dict[str, str]:
    """The variables that vLLM's processes begin with."""
    iomp = Path(sys.prefix) / "lib" / "libiomp5.so"
    return {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_CPU_OMP_THREADS_BIND": f"0-{threads - 1}",
        **({"LD_PRELOAD": str(iomp)} if iomp.exists() else {}),
        **own,
    }


def speculation(mode: str, own: dict[str, Any]) -> dict[str, Any] | None:
    """What vLLM is told of its drafts."""
    if mode == "plain":
        return None
    drafted = 3 if mode == "ngram-3" else 5
    return {"method": "ngram", "num_speculative_tokens": drafted, "prompt_lookup_max": 4, "prompt_lookup_min": 1, **own}


def open_model(options: dict[str, Any]) -> tuple[dict[str, str], Any]:
    settings = options["settings"]
    os.environ.update(environment(options["threads"], settings.get("environment", {})))
    import vllm

    llm = vllm.LLM(
        model=options["model"],
        dtype=options["dtype"],
        max_model_len=options["context"],
        max_num_seqs=settings.get("max_num_seqs", 1),
        # each prompt is read from its first token, as everybody else does
        enable_prefix_caching=False,
        speculative_config=speculation(options["mode"], settings.get("ngram", {})),
        **settings.get("engine", {}),
    )
    engine = llm.llm_engine
    count = 0

    def answer(ids: list[int], max_new_tokens: int, emit: Any) -> None:
        nonlocal count
        count += 1
        sampling = vllm.SamplingParams(
            temperature=0.0, max_tokens=max_new_tokens, stop_token_ids=options["eos"], detokenize=False
        )
        engine.add_request(str(count), {"prompt_token_ids": ids}, sampling)
        taken = 0
        while engine.has_unfinished_requests():
            for output in engine.step():
                tokens = list(output.outputs[0].token_ids)
                emit(tokens[taken:])
                taken = len(tokens)

    return {"vllm": vllm.__version__}, answer
