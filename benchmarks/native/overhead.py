"""Microseconds of a round outside native forwards, by method, for a round without a draft and for each drafted token.

    python benchmarks/native/overhead.py smollm2 benchmarks/native/overhead.json [--draft MODEL] [--base CHECKOUT]

Processor time of the thread that decodes, text included, from one verdict to the next. A neighbour on the machine adds to it
by what it leaves of the caches, so the lower decile of many rounds is told beside the median. --base measures another
checkout too, in turn with this one, each time in a fresh process.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median
from time import thread_time
from typing import Any, final

from forerun import load
from forerun.core.policy import LengthPolicy
from forerun.core.values import Round, Step
from forerun.engine.engine import Engine
from forerun.engine.measurement_conditions import conditions

PROMPT = "Write a list of ten animals, then the same list again, and then once more the same list of animals."
KINDS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0},
    "sampled": {"temperature": 0.7, "top_k": 50, "top_p": 0.9},
}
LENGTHS = (1, 4)
Sample = tuple[int, float]


@final
class NativeTime:
    """Adds up the processor time inside a library's forwards."""

    def __init__(self, functions: Any) -> None:
        self.seconds = 0.0
        self._functions = functions

    def __getattr__(self, name: str) -> Any:
        return getattr(self._functions, name)

    def forerun_forward(self, *arguments: Any) -> int:
        return self._timed(self._functions.forerun_forward, *arguments)

    def forerun_chain(self, *arguments: Any) -> int:
        return self._timed(self._functions.forerun_chain, *arguments)

    def _timed(self, forward: Callable[..., int], *arguments: Any) -> int:
        begun = thread_time()
        status = forward(*arguments)
        self.seconds += thread_time() - begun
        return status


@final
class Noting(LengthPolicy):
    """Drafts a fixed number of tokens and notes (drafted tokens, seconds outside forwards) of each round but the first."""

    def __init__(self, length: int, inside: Sequence[NativeTime], samples: list[Sample]) -> None:
        self._length, self._inside, self._samples = length, inside, samples
        self._last: float | None = None

    def should_stop(self, steps: Sequence[Step]) -> bool:
        return len(steps) >= self._length

    def ahead(self, steps: Sequence[Step]) -> int:
        return self._length - len(steps)

    def observe(self, steps: Sequence[Step], round: Round) -> None:
        now = thread_time() - sum(own.seconds for own in self._inside)
        if self._last is not None:
            self._samples.append((len(round.draft), now - self._last))
        self._last = now


def watched(engine: Engine) -> list[NativeTime]:
    """Native time of every model of the engine from now on."""
    found = []
    for runner in engine.runners:
        step = getattr(runner, "_step", None)
        if step is not None:
            if not isinstance(step.library.functions, NativeTime):
                object.__setattr__(step.library, "functions", NativeTime(step.library.functions))
            found.append(step.library.functions)
    return list({id(own): own for own in found}.values())


def methods(model: Engine, draft: str) -> dict[str, tuple[str, dict[str, Any]]]:
    layers = model.runner.num_layers
    middle = tuple(range(2, layers - 2))
    told: dict[str, tuple[str, dict[str, Any]]] = {
        "none": ("none", {}),
        "lookup": ("lookup", {}),
        "self, exit": ("self", {"exit_layer": max(layers // 8, 1)}),
        "self, skips": ("self", {"skip_attention": middle, "skip_mlp": middle}),
        "hybrid": ("hybrid", {"then": "self", "exit_layer": max(layers // 8, 1)}),
    }
    return told | ({"draft_model": ("draft_model", {"model": draft})} if draft else {})


def measured(given: argparse.Namespace) -> dict[str, list[Sample]]:
    """Samples by method and kind."""
    engine = load(given.model, weights="int4", drafter="none")
    found: dict[str, list[Sample]] = {}
    known = methods(engine, given.draft)
    for name in given.methods or known:
        drafter, options = known[name]
        for kind, sampling in KINDS.items():
            samples = found.setdefault(f"{name}, {kind}", [])
            for length in LENGTHS if drafter != "none" else (1,):
                inside: list[NativeTime] = []
                one = engine.using(drafter, partial(Noting, length, inside, samples), drafter_options=options)
                inside += watched(one)
                for seed in range(given.repeats):
                    one.generate(PROMPT, seed=seed, max_new_tokens=given.tokens, ignore_eos=True, **sampling)
    return found


def told(samples: Sequence[Sample]) -> dict[str, Any]:
    """Microseconds by drafted tokens, and what a drafted token adds between the shortest and the longest drafts."""
    by: dict[int, list[float]] = {}
    for drafted, seconds in samples:
        by.setdefault(drafted, []).append(1e6 * seconds)
    own = {count: sorted(values) for count, values in sorted(by.items()) if len(values) >= 10}
    low = {count: values[len(values) // 10] for count, values in own.items()}
    lines = {
        count: {"rounds": len(values), "lower decile": round(low[count], 1), "median": round(median(values), 1)}
        for count, values in own.items()
    }
    first, last = min(low, default=0), max(low, default=0)
    slope = (low[last] - low[first]) / (last - first) if last > first else None
    return {"by drafted tokens": lines, "a drafted token": None if slope is None else round(slope, 1)}


def in_turn(given: argparse.Namespace) -> dict[str, dict[str, list[Sample]]]:
    """Samples of this checkout and of the other one, each turn in a fresh process."""
    checkouts = {"this": Path(__file__).parents[2]} | ({"base": Path(given.base)} if given.base else {})
    found: dict[str, dict[str, list[Sample]]] = {name: {} for name in checkouts}
    asked = [f"--{name}={getattr(given, name)}" for name in ("draft", "tokens", "repeats")]
    asked += ["--methods", *given.methods] if given.methods else []
    for _ in range(given.turns):
        for name, checkout in checkouts.items():
            command = [sys.executable, __file__, given.model, "-", *asked]
            environment = {**os.environ, "PYTHONPATH": str(checkout / "src")}
            ran = subprocess.run(command, env=environment, capture_output=True, check=True)
            for case, samples in json.loads(ran.stdout).items():
                found[name].setdefault(case, []).extend(samples)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("output", help="a file; - prints this checkout's samples")
    parser.add_argument("--draft", default="", help="a draft model, measured as well")
    parser.add_argument("--base", default="", help="another checkout with its kernels built")
    parser.add_argument("--methods", nargs="*", help="some of them; all if none is named")
    parser.add_argument("--tokens", type=int, default=120)
    parser.add_argument("--repeats", type=int, default=2, help="texts of each method and draft length")
    parser.add_argument("--turns", type=int, default=2, help="processes of each checkout")
    parser.add_argument("--note", default="")
    given = parser.parse_args()
    if given.output == "-":
        print(json.dumps(measured(given)))
        return
    before = os.getloadavg()
    results = {name: {case: told(own) for case, own in found.items()} for name, found in in_turn(given).items()}
    engine = load(given.model, weights="int4", drafter="none")
    about = {
        **conditions(engine, " ".join(["python", "benchmarks/native/overhead.py", *sys.argv[1:]])),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "note": given.note,
        "load": [round(value, 1) for value in (*before, *os.getloadavg())],
    }
    Path(given.output).write_text(
        json.dumps({"about": about, "microseconds": results}, indent=1) + "\n", encoding="utf-8"
    )
    for name, cases in results.items():
        for case, found in cases.items():
            print(name, case, found)


if __name__ == "__main__":
    main()
