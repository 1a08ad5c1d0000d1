"""Times llama.cpp's forwards of some rows, all with logits, for forwards.py. Runs in a Python with llama-cpp-python."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable
from time import perf_counter
from typing import Any

import llama_cpp
from turns import serve


@llama_cpp.llama_log_callback
def silent(level: int, text: bytes, data: ctypes.c_void_p) -> None:
    """Takes llama.cpp's log, which is long."""


def opened(settings: dict[str, Any]) -> tuple[dict[str, Any], Callable[..., dict[str, Any]]]:
    llama_cpp.llama_log_set(silent, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()
    model = llama_cpp.llama_model_load_from_file(settings["model"].encode(), llama_cpp.llama_model_default_params())
    wanted = llama_cpp.llama_context_default_params()
    wanted.n_ctx, wanted.n_batch = settings["context"], settings["context"]
    wanted.n_threads = wanted.n_threads_batch = settings["threads"]
    context = llama_cpp.llama_init_from_model(model, wanted)
    memory = llama_cpp.llama_get_memory(context)
    batch = llama_cpp.llama_batch_init(settings["context"], 0, 1)
    held = {"prefix": 0}

    def decode(tokens: list[int], first: int) -> float:
        batch.n_tokens = len(tokens)
        for place, token in enumerate(tokens):
            batch.token[place], batch.pos[place], batch.logits[place] = token, first + place, True
            batch.n_seq_id[place], batch.seq_id[place][0] = 1, 0
        begun = perf_counter()
        if llama_cpp.llama_decode(context, batch):
            raise RuntimeError("llama_decode failed")
        llama_cpp.llama_synchronize(context)
        return 1e3 * (perf_counter() - begun)

    def forward(rows: int) -> float:
        spent = decode([2000 + row for row in range(rows)], held["prefix"])
        llama_cpp.llama_memory_seq_rm(memory, 0, held["prefix"], -1)
        return spent

    def measure(prefix: int, rows: list[int], repeats: int, seed: int) -> dict[str, Any]:
        if held["prefix"] != prefix:
            llama_cpp.llama_memory_clear(memory, True)
            decode([1000 + place % 1000 for place in range(prefix)], 0)
            held["prefix"] = prefix
        times: dict[int, list[float]] = {count: [] for count in rows}
        for repeat in range(repeats):
            for count in random.Random(seed + repeat).sample(rows, len(rows)):
                forward(count)
                times[count].append(forward(count))
        return {str(count): own for count, own in times.items()}

    return {"versions": {"llama-cpp-python": llama_cpp.__version__}, "threads": settings["threads"]}, measure


if __name__ == "__main__":
    serve(opened)
