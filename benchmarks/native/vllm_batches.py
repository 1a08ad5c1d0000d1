"""Times vLLM's answers to several prompts at once, for batches.py. Runs in a Python with vLLM."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from types import ModuleType
from typing import Any

from turns import serve

WORKER = Path(__file__).parents[2] / "src" / "forerun" / "bench" / "workers" / "vllm_engine.py"


def worker() -> ModuleType:
    """What `forerun bench` runs vLLM by; it imports nothing of forerun."""
    spec = importlib.util.spec_from_file_location("vllm_engine", WORKER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def opened(settings: dict[str, Any]) -> tuple[dict[str, Any], Callable[..., dict[str, Any]]]:
    own = worker()
    os.environ.update(own.environment(settings["threads"], {}))
    import vllm

    llm = vllm.LLM(
        model=settings["model"],
        dtype="bfloat16",
        max_model_len=settings["context"],
        max_num_seqs=settings["batch"],
        enable_prefix_caching=False,
        speculative_config=own.speculation(settings["mode"], {}),
    )

    def measure(prompts: list[list[int]], new: int, mode: str) -> dict[str, Any]:
        sampling = vllm.SamplingParams(temperature=0.0, max_tokens=new, ignore_eos=True, detokenize=False)
        begun = perf_counter()
        found = llm.generate([{"prompt_token_ids": ids} for ids in prompts], sampling, use_tqdm=False)
        return {"seconds": perf_counter() - begun, "ids": [list(one.outputs[0].token_ids) for one in found]}

    return {
        "versions": {"vllm": vllm.__version__},
        "threads": settings["threads"],
        "mode": own.MODES[settings["mode"]],
    }, measure


if __name__ == "__main__":
    serve(opened)
