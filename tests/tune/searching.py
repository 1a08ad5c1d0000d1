"""A search as a process of its own, which can be killed, shared and watched."""

from __future__ import annotations

import os
import time
from pathlib import Path

from forerun.models.packed.plan import LayerPlan
from forerun.tune.skipping.search import Budget, SkipSearch, Tried
from forerun.tune.skipping.space import SkipSpace
from forerun.tune.skipping.storage import timing_lock

SPACE = SkipSpace(3)
STARTS = {"all": LayerPlan.skip(3, range(3), range(3)), "one": LayerPlan.skip(3, (1,))}


def price(plan: LayerPlan) -> float:
    """Least, 1, without attention 0, 2 and MLP 1."""
    wanted = {("attention", 0), ("attention", 2), ("mlp", 1)}
    given = {("attention", layer) for layer in plan.attention} | {("mlp", layer) for layer in plan.mlp}
    return 1.0 + len(wanted ^ given)


def search(storage: Path, sampler: str = "random", seed: int = 0) -> SkipSearch:
    return SkipSearch(SPACE, price, STARTS, storage=storage, sampler=sampler, seed=seed)


def work(storage: Path, notes: Path, trials: int, seed: int, pause: float) -> None:
    """Search with prices that take a while; note when each was being timed, and each finished trial's number and value."""
    os.environ["XDG_CACHE_HOME"] = str(storage.parent)

    def slow(plan: LayerPlan) -> float:
        with timing_lock():
            begun = time.monotonic()
            time.sleep(pause)
            _note(notes, f"timed {begun} {time.monotonic()}")
        return price(plan)

    def tick(tried: Tried) -> None:
        _note(notes, f"told {tried.number} {tried.value}")

    SkipSearch(SPACE, slow, STARTS, storage=storage, sampler="random", seed=seed).run(Budget(trials=trials), tick)


def _note(notes: Path, line: str) -> None:
    with notes.open("a") as file:
        file.write(line + "\n")


def noted(notes: Path, kind: str) -> list[tuple[float, float]]:
    lines = notes.read_text().splitlines() if notes.exists() else []
    found = [line.split() for line in lines if line.startswith(kind)]
    return [(float(parts[1]), float(parts[2])) for parts in found if len(parts) == 3]
