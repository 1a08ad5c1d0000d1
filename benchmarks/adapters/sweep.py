"""Exit adapters side by side: acceptance by place, cost c, and the speed-up that follows, by exit and vocabulary.

Run: python benchmarks/adapters/sweep.py OUT.json SUITE ADAPTER [ADAPTER ...]

Greedy on SUITE's prompts in bfloat16, drafts of four tokens. c is the time of a drafted token over that of a plain one, both
from the same run, prompt by prompt in turn. The predicted speed-up is that of the best draft length of 1 to 4:
(1 + a1 + a1 a2 + ...) / (k c + t(k + 1) / t(1)), with t from `forerun calibrate`.
"""

from __future__ import annotations

import json
import shlex
import sys
from itertools import accumulate
from operator import mul
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from forerun import Engine, load
from forerun.bench.calibration import Opened, calibrated
from forerun.bench.suite import read_suite
from forerun.core.cost import Cost
from forerun.engine.measurement_conditions import conditions
from forerun.engine.stats import Stats
from forerun.engine.timing import timed_answer
from forerun.models.files.adapter import read_adapter

VOCABULARIES = (4096, 8192, 16384, 0)
LENGTH = 4
PER_CATEGORY = 2
NEW = 64


def best_length(accepted: list[float], c: float, target: Cost) -> tuple[int, float]:
    """The draft length with the highest predicted speed-up, and that."""
    reached = [1.0, *accumulate(accepted, mul)]
    found = {k: sum(reached[: k + 1]) / (k * c + target.ms(k + 1) / target.ms(1)) for k in range(1, len(accepted) + 1)}
    best = max(found, key=lambda k: found[k])
    return best, found[best]


def swept(engine: Engine, adapters: list[str], prompts: list[Any]) -> list[dict[str, Any]]:
    methods = {
        (adapter, size): engine.using(
            "exit_adapter",
            drafter_options={"adapter": adapter, "vocabulary": size},
            policy_options={"k": LENGTH},
        )
        for adapter in adapters
        for size in VOCABULARIES
    }
    stats = {key: Stats() for key in methods}
    ratios: dict[tuple[str, int], list[float]] = {key: [] for key in methods}
    target = calibrated(Opened("smollm2", engine, ""), [], None, refresh=False, tick=lambda: None)[0].target
    for prompt in prompts:
        plain, seconds = timed_answer(engine, prompt, {"max_new_tokens": NEW})
        if not plain.stats.decoded:
            continue
        for key, method in methods.items():
            result, _ = timed_answer(method, prompt, {"max_new_tokens": NEW})
            stats[key].merge(result.stats)
            if result.stats.drafted:
                own = result.stats.draft_seconds / result.stats.drafted
                ratios[key].append(own / (seconds / plain.stats.decoded))
    rows: list[dict[str, Any]] = []
    for (adapter, size), one in stats.items():
        shape = read_adapter(Path(adapter)).shape
        c, accepted = median(ratios[adapter, size]), list(one.acceptance_per_position)
        length, predicted = best_length(accepted, c, target)
        rows.append(
            {
                "adapter": Path(adapter).name,
                "exit_layer": shape.exit_layer,
                "inputs": shape.inputs,
                "vocabulary": size or engine.runner.vocab_size,
                "c": c,
                "acceptance_per_position": accepted,
                "tokens_per_round": one.tokens_per_round,
                "best_length": length,
                "predicted_speedup": predicted,
            }
        )
    return rows


def main(out: str, suite: str, adapters: list[str]) -> None:
    engine = load("smollm2", dtype="bfloat16")
    prompts = [item.question.prompt((), chat=True) for item in read_suite(Path(suite), PER_CATEGORY)]
    about = conditions(engine, shlex.join(["python", *sys.argv]))
    rows = swept(engine, adapters, prompts)
    report = {**about, "prompts": len(prompts), "new_tokens": NEW, "drafted": LENGTH, "rows": rows}
    Path(out).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    table = Table("adapter", "exit", "inputs", "vocabulary", "c", "acceptance by place", "best k", "predicted")
    for row in rows:
        accepted = " ".join(f"{share:.2f}" for share in row["acceptance_per_position"])
        cells = (row["adapter"], row["exit_layer"], row["inputs"], row["vocabulary"], f"{row['c']:.3f}", accepted)
        table.add_row(*map(str, cells), str(row["best_length"]), f"{row['predicted_speedup']:.2f}")
    Console(width=120).print(table)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
