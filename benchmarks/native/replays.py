"""Tokens a round of the drafters that need no training, by category, and the speed-up that given costs of rows promise.

    python benchmarks/native/replays.py smollm2 SUITE OUT.json [--costs FORWARDS.json] [--forms int4/16,bfloat16]

The model answers in int4, and the loop's clock stands still but for its forwards, which take what the file of costs says of
their rows and prefix. So a busy machine changes nothing, and what chooses by the clock sees the costs of each form. Nothing
is kept from one prompt to the next but what drafters learn; every text is compared with plain decoding's.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from forerun import Engine, load
from forerun.bench.suite import Item, fingerprint, read_suite, turns_of
from forerun.core import decode
from forerun.core.cost import Cost, Point
from forerun.core.forward import Rows
from forerun.engine.measurement_conditions import conditions
from forerun.engine.prompts.questions import has_chat_template
from forerun.engine.request import RequestOptions
from forerun.engine.stats import Stats
from forerun.models.packed.request import Request

PLAIN = "plain"
Chosen = tuple[str, dict[str, Any], str, dict[str, Any]]
METHODS: dict[str, Chosen] = {
    **{f"lookup {k}": ("lookup", {}, "fixed", {"k": k}) for k in (2, 3, 5)},
    "suffix": ("suffix", {}, "confidence_product", {}),
    "recycle": ("recycle", {}, "confidence_product", {}),
    "hybrid: lookup, recycle": ("hybrid", {"then": "recycle"}, "fixed", {"k": 3}),
    "cascade: suffix, recycle": ("cascade", {"of": "suffix,recycle"}, "confidence_product", {}),
}


class Clock:
    """Takes the place of the loop's clock: a forward of the engine's model takes what `cost` says."""

    def __init__(self, engine: Engine) -> None:
        self.cost: Cost | None = None
        self._now = 0.0
        self._execute = engine.runner.execute
        engine.runner.execute = self.run  # type: ignore[method-assign]
        decode.perf_counter = lambda: self._now  # type: ignore[assignment]

    def run(self, requests: Sequence[Request]) -> list[Rows]:
        assert self.cost is not None
        part = requests[0].part
        self._now += self.cost.ms(sum(request.part.n for request in requests), part.committed) / 1000
        return self._execute(requests)


@dataclass
class Told:
    """A method on the prompts of one category."""

    stats: Stats = field(default_factory=Stats)
    prompts: int = 0
    identical: int = 0


def cost_of(file: Path, form: str) -> Cost:
    """What forwards.py measured of a native form."""
    told = [
        one for one in json.loads(file.read_text(encoding="utf-8"))["forwards"] if one["subject"] == f"native {form}"
    ]
    if not told:
        raise SystemExit(f"{file} has no costs of native {form}")
    return Cost("smollm2", "native", form, "full", tuple(Point(one["rows"], one["prefix"], one["ms"]) for one in told))


def replayed(
    engine: Engine, clock: Clock, cost: Cost, asked: Iterable[tuple[Item, list[int]]], new: int
) -> dict[str, dict[str, Told]]:
    """By method and category. Methods take turns, so that the prompt is read once."""
    clock.cost = engine.runner.cost = cost
    engines = {
        name: engine.using(drafter, policy, drafter_options=options, policy_options=limits)
        for name, (drafter, options, policy, limits) in METHODS.items()
    }
    found: dict[str, dict[str, Told]] = {name: {} for name in (PLAIN, *engines)}
    options: RequestOptions = {"max_new_tokens": new, "remember": False}
    for item, prompt in asked:
        plain = engine.generate(prompt, **options)
        answers = {PLAIN: plain, **{name: own.generate(prompt, **options) for name, own in engines.items()}}
        for name, answer in answers.items():
            told = found[name].setdefault(item.category, Told())
            told.stats.merge(answer.stats)
            told.prompts += 1
            told.identical += answer.ids == plain.ids
    return found


def figures(told: Sequence[Told], plain: Sequence[Told], draft_us: float) -> dict[str, Any]:
    stats, base = Stats(), Stats()
    for one, own in zip(told, plain, strict=True):
        stats.merge(one.stats)
        base.merge(own.stats)
    seconds = stats.decode_seconds + stats.drafted * draft_us / 1e6
    return {
        "tokens_per_round": round(stats.tokens_per_round, 4),
        "drafted_per_round": round(stats.drafted / stats.rounds, 4) if stats.rounds else 0.0,
        "acceptance": stats.acceptance and round(stats.acceptance, 4),
        "speedup": round((stats.decoded / seconds) / (base.decoded / base.decode_seconds), 4),
        "prompts": sum(one.prompts for one in told),
        "identical": sum(one.identical for one in told),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("suite", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--costs", type=Path, default=Path("benchmarks/native/forwards-smollm2.json"))
    parser.add_argument("--forms", type=lambda text: text.split(","), default=["int4/16", "bfloat16"])
    parser.add_argument(
        "--draft-us", type=float, default=30.0, help="what a drafted token takes besides, in microseconds"
    )
    parser.add_argument("--per-category", type=int)
    parser.add_argument("--all-turns", action="store_true")
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    engine = load(given.model, weights="int4", drafter="none")
    clock = Clock(engine)
    clock.cost = cost_of(given.costs, given.forms[0])
    items, chat = read_suite(given.suite, given.per_category), has_chat_template(engine.tokenizer)
    if not given.all_turns:
        items = [Item(item.id, item.kind, type(item.question)(item.question.turns[:1])) for item in items]
    asked = list(zip(*turns_of(engine, items, {"max_new_tokens": given.new}, chat), strict=True))
    report: dict[str, Any] = {
        **conditions(engine, shlex.join(["python", *sys.argv])),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "suite": {"file": given.suite.name, "sha256": fingerprint(given.suite), "prompts": len(asked)},
        "costs": str(given.costs),
        "draft_us": given.draft_us,
        "new_tokens": given.new,
        "forms": {},
    }
    for form in given.forms:
        found = replayed(engine, clock, cost_of(given.costs, form), asked, given.new)
        report["forms"][form] = {
            name: {
                "all": figures(list(own.values()), list(found[PLAIN].values()), given.draft_us),
                **{kind: figures([told], [found[PLAIN][kind]], given.draft_us) for kind, told in own.items()},
            }
            for name, own in found.items()
            if name != PLAIN
        }
        given.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
        for name, own in report["forms"][form].items():
            shown = "  ".join(
                f"{kind} {one['tokens_per_round']:.2f} {one['speedup']:.2f}x" for kind, one in own.items()
            )
            print(f"{form} {name:26} {shown}", flush=True)


if __name__ == "__main__":
    main()
