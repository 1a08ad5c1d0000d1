"""A graph of drafts against a plain tree (m = -1) and a chain, each at its best setting, on one pair of models.

Run: python benchmarks/graphs/compare.py OUT.json TARGET SUITE --of draft_model --model DRAFT [--weights int4]
     python benchmarks/graphs/compare.py OUT.json smollm2 SUITE --of exit_adapter --adapter DIR --dtype bfloat16

Greedy on SUITE's prompts. Every setting answers the first prompt of each category; the fastest of each kind is judged on the
others, in turn with plain decoding. Draft forwards and rows are counted, not timed, so they hold on any machine.
"verification" is what a forward of so many rows costs here, over one of a single row.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from forerun import Engine, load
from forerun.bench.calibration import Opened, calibrated
from forerun.bench.suite import fingerprint, read_suite
from forerun.engine.measurement_conditions import conditions
from forerun.engine.stats import Stats
from forerun.engine.timing import timed_answer

DEPTHS = (2, 3, 4, 6)
THRESHOLDS = ((0.0, 0.0), (0.2, 0.2), (0.3, 0.3))  # sibling, leaf
COUNTS = ("draft_forwards", "drafted", "merged", "rows_saved", "rows_verified", "rounds")


@dataclass(frozen=True)
class Setting:
    """A method: kind is what it competes as, depth the policy's k."""

    kind: str
    drafter: str
    options: dict[str, Any]
    depth: int


def settings(of: str, inner: dict[str, Any], budget: int) -> list[Setting]:
    branched = {"of": of, **inner, "budget": budget}
    found = [Setting("chain", of, inner, depth) for depth in DEPTHS]
    for depth, (sibling, leaf), m in product(DEPTHS, THRESHOLDS, (-1, 0, 1)):
        options = {**branched, "m": m, "sibling": sibling, "leaf": leaf}
        found.append(Setting("graph" if m >= 0 else "plain tree", "graph", options, depth))
    for depth, least in product(DEPTHS, (0.05, 0.2)):
        found.append(Setting("tree by confidence", "tree", {**branched, "min_confidence": least}, depth))
    return found


def engine_of(plain: Engine, setting: Setting) -> Engine:
    return plain.using(setting.drafter, drafter_options=setting.options, policy_options={"k": setting.depth})


def judged(plain: Engine, engines: list[Engine], prompts: list[Any], new: int) -> list[dict[str, Any]]:
    """For each engine, its counts a token and its speed over plain decoding's, prompt by prompt in turn.

    Nobody finds a text computed by another one, and the order changes from prompt to prompt.
    """
    told: list[dict[str, Any]] = [{"stats": Stats(), "speeds": [], "gains": [], "identical": True} for _ in engines]
    for number, prompt in enumerate(prompts):
        plain.forget()
        expected, seconds = timed_answer(plain, prompt, {"max_new_tokens": new})
        if not expected.stats.decoded:
            continue
        own = expected.stats.decoded / seconds
        every = list(zip(engines, told, strict=True))
        first = number % len(every)
        for engine, one in every[first:] + every[:first]:
            plain.forget()
            result, seconds = timed_answer(engine, prompt, {"max_new_tokens": new})
            one["stats"].merge(result.stats)
            one["speeds"].append(result.stats.decoded / seconds)
            one["gains"].append(one["speeds"][-1] / own)
            one["identical"] &= result.ids == expected.ids
    return [_figures(one) for one in told]


def _figures(one: dict[str, Any]) -> dict[str, Any]:
    stats: Stats = one["stats"]
    return {
        "tokens_per_round": stats.tokens_per_round,
        "per_token": {name: getattr(stats, name) / stats.decoded for name in COUNTS},
        "acceptance_per_position": list(stats.acceptance_per_position),
        "draft_share_of_time": stats.draft_seconds / stats.decode_seconds,
        "tokens_per_second": median(one["speeds"]),
        "speedup": median(one["gains"]),
        "speedups": one["gains"],
        "identical": one["identical"],
    }


def compared(plain: Engine, all_of_them: list[Setting], prompts: list[Any], new: int) -> list[dict[str, Any]]:
    """The best setting of each kind, chosen on the first half of the prompts and judged on the others."""
    half = max(len(prompts) // 2, 1)
    scanned = judged(plain, [engine_of(plain, setting) for setting in all_of_them], prompts[:half], new)
    best: dict[str, int] = {}
    for index, setting in enumerate(all_of_them):
        known = best.setdefault(setting.kind, index)
        if scanned[index]["speedup"] > scanned[known]["speedup"]:
            best[setting.kind] = index
    chosen = [all_of_them[index] for index in best.values()]
    figures = judged(plain, [engine_of(plain, setting) for setting in chosen], prompts[half:] or prompts, new)
    scan = [{**asdict(setting), "speedup": one["speedup"]} for setting, one in zip(all_of_them, scanned, strict=True)]
    return [
        {**asdict(setting), **one, "scanned": [row for row in scan if row["kind"] == setting.kind]}
        for setting, one in zip(chosen, figures, strict=True)
    ]


def main(given: argparse.Namespace) -> None:
    names = ("model", "adapter", "exit_layer", "vocabulary")
    inner = {name: getattr(given, name) for name in names if getattr(given, name) is not None}
    if given.drafter_weights:
        inner["weights"] = given.drafter_weights
    plain = load(given.target, dtype=given.dtype, weights=given.weights)
    opened = Opened(given.target, plain, given.weights)
    target = calibrated(opened, refresh=True)[0].target
    plain.runner.cost = target
    items = read_suite(Path(given.suite), given.per_category)[: given.prompts]
    prompts = [item.question.prompt((), chat=True) for item in items]
    everything = settings(given.of, inner, given.budget)[:: given.every]
    rows = compared(plain, everything, prompts, given.new)
    about = conditions(plain, shlex.join(["python", *sys.argv]))
    suite = {"suite": given.suite, "suite_sha256": fingerprint(Path(given.suite)), "prompts": [i.id for i in items]}
    curve = {rows: target.ms(rows) / target.ms(1) for rows in target.rows}
    told = {"weights": given.weights, "new_tokens": given.new, "verification": curve, "methods": rows}
    report = {**about, **suite, **told}
    Path(given.out).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    table = Table("kind", "depth", "tokens/round", "draft forwards/token", "rows verified/token", "saved", "speed-up")
    for row in rows:
        per = row["per_token"]
        shares = (per["draft_forwards"], per["rows_verified"], per["rows_saved"], row["speedup"])
        table.add_row(
            row["kind"], str(row["depth"]), f"{row['tokens_per_round']:.2f}", *(f"{share:.2f}" for share in shares)
        )
    Console(width=120).print(table)


if __name__ == "__main__":
    flags = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name in ("out", "target", "suite"):
        flags.add_argument(name)
    flags.add_argument("--of", default="draft_model")
    for name in ("--model", "--adapter", "--dtype"):
        flags.add_argument(name)
    flags.add_argument("--weights", default="")
    flags.add_argument("--drafter-weights", default="", help="smaller ones for the drafter alone")
    for name in ("--exit-layer", "--vocabulary", "--per-category", "--prompts"):
        flags.add_argument(name, type=int)
    flags.add_argument(
        "--budget", type=int, default=0, help="nodes a round; 0: as many as the kept calibration says pay"
    )
    flags.add_argument("--new", type=int, default=64)
    flags.add_argument("--every", type=int, default=1, help="scan only every n-th setting")
    main(flags.parse_args())
