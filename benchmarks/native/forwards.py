"""Milliseconds of a forward by rows: torch's operations beside the native step, in alternating, shuffled runs.

    python benchmarks/native/forwards.py smollm2 benchmarks/native/smollm2-int4.json [--note TEXT]

Each timed forward stands after an untimed one of the same runner, as in decoding. Ratios hold within one run only.
"""

from __future__ import annotations

import argparse
import json
import os
import random
from collections.abc import Callable
from datetime import UTC, datetime
from statistics import median, quantiles
from time import perf_counter
from typing import Any

from forerun import load
from forerun.core.drive import drive
from forerun.engine.engine import Engine
from forerun.engine.measurement_conditions import conditions
from forerun.models.lean.native.library import SWITCH
from forerun.models.lean.native.machine import machine
from forerun.models.packed.sequence import Sequence

ROWS = (1, 2, 4, 8, 16)
PREFIXES = (100, 800)
REPEATS = 15
ACTIVATIONS = {"torch": None, "native 8-bit": 8, "native 16-bit": 16}


def opened(model: str) -> dict[str, Engine]:
    engines = {}
    for name, bits in ACTIVATIONS.items():
        os.environ[SWITCH] = "off" if bits is None else "avx512"
        engines[name] = load(model, weights="int4", drafter="none")
        if bits is not None:
            engines[name].runner.use_activations(bits)
    return engines


def run(coroutine: Any) -> Any:
    async def once() -> Any:
        yield await coroutine

    (rows,) = drive(once())
    return rows


def forward(sequence: Sequence, rows: int) -> Callable[[], float]:
    tokens, parents = [2000 + row for row in range(rows)], list(range(-1, rows - 1))

    def timed() -> float:
        run(sequence.complete(tokens, parents))
        begun = perf_counter()
        run(sequence.complete(tokens, parents))
        return perf_counter() - begun

    return timed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("output")
    parser.add_argument("--note", default="")
    given = parser.parse_args()
    engines = opened(given.model)
    subjects: dict[tuple[str, int, int], Callable[[], float]] = {}
    for prefix in PREFIXES:
        for name, engine in engines.items():
            sequence = Sequence(engine.runner, capacity=1024)
            run(sequence.sync([1000 + place for place in range(prefix)]))
            subjects |= {(name, prefix, rows): forward(sequence, rows) for rows in ROWS}
    times: dict[tuple[str, int, int], list[float]] = {key: [] for key in subjects}
    load_before = os.getloadavg()
    for repeat in range(REPEATS):
        keys = list(subjects)
        random.Random(repeat).shuffle(keys)
        for key in keys:
            times[key].append(1e3 * subjects[key]())
    found = [
        {
            "kernels": name,
            "prefix": prefix,
            "rows": rows,
            "ms": round(median(own), 3),
            "fastest": round(min(own), 3),
            "quartiles": [round(value, 3) for value in quantiles(own)],
        }
        for (name, prefix, rows), own in times.items()
    ]
    bandwidth, best = machine().bandwidth, engines["native 16-bit"].runner
    about = {
        **conditions(engines["native 16-bit"], f"python benchmarks/native/forwards.py {given.model} {given.output}"),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "note": given.note,
        "load": [round(value, 1) for value in (*load_before, *os.getloadavg())],
        "bandwidth": bandwidth,
        "step_bytes": best.step_nbytes,
        "repeats": REPEATS,
    }
    with open(given.output, "w", encoding="utf-8") as file:
        json.dump({"about": about, "forwards": found}, file, indent=1)
        file.write("\n")
    for prefix in PREFIXES:
        for name in engines:
            line = [one for one in found if (one["kernels"], one["prefix"]) == (name, prefix)]
            print(f"prefix {prefix:4} {name:14}", *(f"{one['ms']:8.2f} ({one['fastest']:.2f})" for one in line))


if __name__ == "__main__":
    main()
