"""The skip-set search against the exhaustive best of 4,096 sets and against random draws, over several seeds.

The price is computed, not timed, so a run gives the same figures on any machine. OUT.json is written after every seed.
Run from the repository's root: PYTHONPATH=. python benchmarks/tune/skip_search.py benchmarks/tune/skip_search.json
"""

from __future__ import annotations

import argparse
import json
import random
import shlex
import sys
from importlib.metadata import version
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch

from forerun.engine.measurement_conditions import conditions
from forerun.models.packed.plan import LayerPlan
from forerun.tune.skipping.match_rate import harms
from forerun.tune.skipping.search import SAMPLERS, Budget, SkipSearch
from forerun.tune.skipping.space import starting_points
from tests.tune.redundant import Redundant, redundant


def run(made: Redundant, sampler: str, seed: int, trials: int, warm: bool) -> dict[str, Any]:
    """The best value over the exhaustive best, and the first trial within 5 % of it; warm is with starting points."""
    starts = starting_points(made.space, harms(made.rate, made.space)) if warm else {}
    with TemporaryDirectory() as folder:
        search = SkipSearch(
            made.space, made.price, starts, storage=Path(folder) / "trials.log", sampler=sampler, seed=1000 * seed
        )
        best = search.run(Budget(trials=trials))
        within = [one.number for one in search.tried if one.value <= 1.05 * made.least]
        sets = len({one.plan for one in search.tried})
    return {
        "seed": seed,
        "over_best": best.value / made.least - 1,
        "within_5_percent_at": min(within, default=None),
        "sets": sets,
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("out", type=Path)
    options.add_argument("--seeds", type=int, default=10)
    options.add_argument("--trials", type=int, default=150)
    options.add_argument("--sampler", choices=list(SAMPLERS), default="gp")
    options.add_argument("--cold", action="store_true", help="without starting points but the empty set")
    given = options.parse_args()
    torch.set_num_threads(1)
    made = redundant()
    prices = list(made.prices.values())
    draws = [min(random.Random(seed).choices(prices, k=given.trials)) for seed in range(10)]
    about = conditions(made.engine, shlex.join(["python", *sys.argv]))
    about["versions"]["optuna"] = version("optuna")
    about |= {"sampler": given.sampler, "trials": given.trials, "starting_points": not given.cold, "sets": len(prices)}
    about |= {"empty_set_over_best": made.prices[LayerPlan()] / made.least - 1}
    about |= {"random_median_over_best": median(draws) / made.least - 1}
    runs: list[dict[str, Any]] = []
    for seed in range(given.seeds):
        runs.append(run(made, given.sampler, seed, given.trials, not given.cold))
        over = [one["over_best"] for one in runs]
        told = {**about, "median_over_best": median(over), "worst_over_best": max(over), "runs": runs}
        given.out.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
