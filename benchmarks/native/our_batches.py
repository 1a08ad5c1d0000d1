"""Times forerun's answers to several prompts at once, for batches.py; FORERUN_NATIVE says by whose kernels."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

import torch
from turns import serve

from forerun import load
from forerun.engine.measurement_conditions import conditions


def opened(settings: dict[str, Any]) -> tuple[dict[str, Any], Callable[..., dict[str, Any]]]:
    torch.set_num_threads(settings["threads"])
    plain = load(settings["model"], drafter="none", **settings["form"])
    engines = {"plain": plain, "lookup": plain.using("lookup", "fixed")}

    def measure(prompts: list[list[int]], new: int, mode: str) -> dict[str, Any]:
        engine = engines[mode]
        engine.forget()
        begun = perf_counter()
        results = engine.generate(prompts, max_new_tokens=new, ignore_eos=True, max_batch=len(prompts))
        return {"seconds": perf_counter() - begun, "ids": [list(result.ids) for result in results]}

    return {**conditions(plain, ""), "kernels": plain.runner.kernels, "reason": plain.runner.kernels_reason}, measure


if __name__ == "__main__":
    serve(opened)
