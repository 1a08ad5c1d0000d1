"""Times forerun's forwards of some rows, for forwards.py; FORERUN_NATIVE says by whose kernels."""

from __future__ import annotations

import random
from collections.abc import Callable
from time import perf_counter
from typing import Any

import torch
from turns import serve

from forerun import load
from forerun.core.drive import drive
from forerun.engine.measurement_conditions import conditions
from forerun.models.packed.sequence import Sequence


def run(coroutine: Any) -> Any:
    async def once() -> Any:
        yield await coroutine

    (rows,) = drive(once())
    return rows


def opened(settings: dict[str, Any]) -> tuple[dict[str, Any], Callable[..., dict[str, Any]]]:
    torch.set_num_threads(settings["threads"])
    engine = load(settings["model"], drafter="none", **settings["form"])
    runner = engine.runner
    sequences: dict[int, Sequence] = {}

    def forward(prefix: int, rows: int) -> float:
        begun = perf_counter()
        run(sequences[prefix].complete([2000 + row for row in range(rows)], list(range(-1, rows - 1))))
        return 1e3 * (perf_counter() - begun)

    def measure(prefix: int, rows: list[int], repeats: int, seed: int) -> dict[str, Any]:
        if prefix not in sequences:
            sequences[prefix] = Sequence(runner, capacity=prefix + max(rows) + 1)
            run(sequences[prefix].sync([1000 + place % 1000 for place in range(prefix)]))
        times: dict[int, list[float]] = {count: [] for count in rows}
        for repeat in range(repeats):
            for count in random.Random(seed + repeat).sample(rows, len(rows)):
                # as in decoding: after another forward of its kind
                forward(prefix, count)
                times[count].append(forward(prefix, count))
        return {str(count): own for count, own in times.items()}

    about = {
        **conditions(engine, ""),
        "kernels": runner.kernels,
        "reason": runner.kernels_reason,
        "step_bytes": runner.step_nbytes,
    }
    return about, measure


if __name__ == "__main__":
    serve(opened)
