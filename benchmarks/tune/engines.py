"""The launch command that forerun tune --engine wrote, raced against the engine's own default way to draft and against off.

    python benchmarks/tune/engines.py SYSTEM.json HELD_OUT.jsonl OUT.json

The prompts are those that the run held out. The settings answer by turns, in a changing order, at the loads that were tuned
for. A server that drafts from earlier answers starts anew before a prompt comes again. Seconds include reading prompts.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

from forerun.engine.hardware import hardware
from forerun.engine.prompts.questions import read_questions
from forerun.tune.journal import Journal
from forerun.tune.serving.engines import engine_named
from forerun.tune.serving.field import Launched
from forerun.tune.serving.knobs import OFF, Knobs
from forerun.tune.serving.race import Race, Racing
from forerun.tune.serving.report import race_told
from forerun.tune.serving.serving_engine import Launch
from forerun.tune.serving.subjects import launched

NGRAM = {"method": "ngram", "num_speculative_tokens": 5}
DEFAULTS = {
    "llama.cpp": Knobs(
        "default", "default", 2, {"--spec-type": "ngram-mod"}, remembers=True
    ),  # what --spec-default sets
    "vllm": Knobs("default", "default", 2, {"speculative_config": NGRAM}),
}


def raced(told: dict[str, Any], given: argparse.Namespace) -> Race:
    engine = engine_named(told["engine"])
    launch = Launch(**{**told["launch"], "more": tuple(told["launch"]["more"])})
    tuned = Knobs(told["method"], f"tuned: {told['name']}", 1, told["settings"], told["remembers"])
    if engine.command(launch, tuned if told["name"] != OFF.name else OFF) != told["command"]:
        raise SystemExit(f"{given.system} holds a command that this forerun would write otherwise; tune again")
    others = [DEFAULTS[engine.name]] if told["name"] == OFF.name else [tuned, DEFAULTS[engine.name]]
    prompts = [question.prompt((), not given.raw) for question in read_questions(given.held_out)]
    with TemporaryDirectory() as folder, Journal(Path(folder) / "log.jsonl", {}, monotonic) as journal:
        entered = Launched(lambda knobs: launched(engine, launch, knobs, given.new), len(others) + 1)
        with closing(entered):
            racing = Racing(
                entered, journal, told["tuned_on"]["concurrency"], lambda what: print(what, file=sys.stderr)
            )
            return racing.run("race", others, prompts, until=0.0, least=given.heats, most=given.heats)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("system", type=Path)
    parser.add_argument("held_out", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--heats", type=int, default=10)
    parser.add_argument("--new", type=int, default=64, help="tokens of each answer at most")
    parser.add_argument("--raw", action="store_true", help="without the chat template")
    given = parser.parse_args()
    told, before = json.loads(given.system.read_text(encoding="utf-8")), os.getloadavg()
    race = raced(told, given)
    report = {
        "command": shlex.join(["python", *sys.argv]),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "hardware": hardware(),
        "cores": os.cpu_count(),
        "load": [round(value, 1) for value in (*before, *os.getloadavg())],
        "engine": told["engine"],
        "engine_version": told["tuned_on"]["engine_version"],
        "launched_by": told["command"],
        "rows": race_told(race),
        "failed": race.failed,
    }
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    for row in report["rows"]:
        at = ", ".join(f"{one['speedup'] or 0:.2f} x off at {load}" for load, one in row["by_load"].items())
        print(f"{row['name']}: {at}; equal texts {row['equal_texts']}")


if __name__ == "__main__":
    main()
