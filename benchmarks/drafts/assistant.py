"""A trained draft as transformers' own assistant: equal text, and how many tokens a target forward gives.

Run: python benchmarks/drafts/assistant.py OUT.json smollm2 DRAFT SUITE [PROMPTS]
"""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM

from forerun.bench.suite import read_suite
from forerun.engine.prompts.forms import encode
from forerun.models.loading.load import open_module

NEW = 64


def answered(target: Any, ids: torch.Tensor, draft: Any | None) -> dict[str, Any]:
    """A greedy answer: its ids, seconds, and how many forwards of the target it took."""
    count = 0

    def counted(module: Any, args: Any) -> None:
        nonlocal count
        count += 1

    handle = target.model.register_forward_pre_hook(counted)
    begun = perf_counter()
    try:
        given = {"attention_mask": torch.ones_like(ids), "max_new_tokens": NEW, "do_sample": False}
        whole = target.generate(ids, assistant_model=draft, **given)
    finally:
        handle.remove()
    return {"ids": whole[0, ids.shape[1] :].tolist(), "seconds": perf_counter() - begun, "forwards": count}


def main(out: str, model: str, draft: str, suite: str, prompts: int) -> None:
    module = open_module(model, dtype="float32", device="cpu")
    assistant = AutoModelForCausalLM.from_pretrained(draft, dtype=torch.float32)
    rows: list[dict[str, Any]] = []
    for item in read_suite(Path(suite), None)[:prompts]:
        ids = torch.tensor([encode(item.question.prompt((), chat=True), module.tokenizer)])
        plain, drafted = (answered(module.model, ids, one) for one in (None, assistant))
        rows.append(
            {
                "identical": plain["ids"] == drafted["ids"],
                "tokens_per_forward": len(drafted["ids"]) / drafted["forwards"],
                "speedup": plain["seconds"] / drafted["seconds"],
            }
        )
    report = {
        "command": shlex.join(["python", *sys.argv]),
        "versions": {"transformers": transformers.__version__, "torch": torch.__version__},
        "threads": torch.get_num_threads(),
        "dtype": "float32",
        "identical": sum(row["identical"] for row in rows),
        "prompts": len(rows),
        "tokens_per_forward": median(row["tokens_per_forward"] for row in rows),
        "speedup": median(row["speedup"] for row in rows),
        "rows": rows,
    }
    Path(out).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({name: value for name, value in report.items() if name != "rows"}))


if __name__ == "__main__":
    main(*sys.argv[1:5], int(sys.argv[5]) if len(sys.argv) > 5 else 8)
