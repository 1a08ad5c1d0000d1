"""vLLM, plain, with its own n-grams, and with forerun's proposer, at several numbers of requests at once.

    python benchmarks/engines/vllm.py smollm2 SUITE OUT.json --vllm-python .peers/vllm/bin/python

The proposer drafts up to 8 tokens by `suffix`, always all that it finds (fixed), under `cost` and under `governor`; and by a
drafter that is nearly always wrong (noise). Four processes with an engine each answer by turns (turns.py says why), the same
prompts up to their own ends. A proposer keeps from one turn to the next what it learnt, as in a server, but not the answers,
since the same are asked for again; the first turn, in which everything is new, stands apart as warm_up. Seconds include
reading the prompts. Ratios hold within one run only; about 10 minutes on two quiet cores. A shorter one opens three engines:

    --engines plain,ngram-3,forerun --methods governor,"noise governor" --sizes 1,16 --prompts 4,16 --repeats 2 --new 48
        --eager

Methods "draft ..." and "both ..." run the shipped draft of smollm2, alone and after `suffix`; for them vLLM's Python needs
forerun itself installed (pip install --no-deps) and platformdirs.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from time import sleep
from typing import Any

HERE = Path(__file__).parent
sys.path[0] = str(HERE.parent / "native")  # in place of this folder, whose name for this file is a package's

from forms import numbers, picked  # noqa: E402
from turns import REST_SECONDS, Turn  # noqa: E402

from forerun import load  # noqa: E402
from forerun.bench.peer_models import peer_models  # noqa: E402
from forerun.engine.measurement_conditions import hardware  # noqa: E402

ENGINES = ("plain", "ngram-3", "ngram-5", "forerun")
SUFFIX, NOISE = {"name": "suffix", "history": 0}, {"name": "noise"}
DRAFT = {"name": "draft_model", "model": "smollm2-draft"}
BOTH = {"name": "cascade", "of": "suffix,draft_model", "history": 0, "model": "smollm2-draft"}
POLICIES: dict[str, dict[str, Any]] = {
    "fixed": {"name": "fixed"},
    "cost": {"name": "cost"},
    "governor": {"name": "governor", "inner": "cost"},
}
METHODS = {
    **{name: {"drafter": SUFFIX, "policy": policy} for name, policy in POLICIES.items()},
    **{f"noise {name}": {"drafter": NOISE, "policy": policy} for name, policy in POLICIES.items()},
    **{f"draft {name}": {"drafter": DRAFT, "policy": policy} for name, policy in POLICIES.items()},
    **{f"both {name}": {"drafter": BOTH, "policy": policy} for name, policy in POLICIES.items()},
}
BY_DEFAULT = [name for name in METHODS if not name.startswith(("draft ", "both "))]  # for any model


def names(known: Iterable[str]) -> Callable[[str], list[str]]:
    """Some of the known names between commas, for a command line."""

    def read(text: str) -> list[str]:
        wanted = text.split(",")
        if unknown := [name for name in wanted if name not in known]:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(known)}")
        return wanted

    return read


def opened(given: argparse.Namespace, context: int, stack: ExitStack) -> dict[str, tuple[Turn, str]]:
    """By name, the process and the method that it is asked for."""
    found: dict[str, tuple[Turn, str]] = {}
    model = peer_models(given.model, given.dtype)["hf"]
    for mode in given.engines:
        print(f"opening {mode}", file=sys.stderr)
        settings = {
            "model": model,
            "dtype": given.dtype,
            "context": context,
            "batch": max(given.sizes),
            "mode": mode,
            "longest": given.longest,
            "threads": given.threads,
            "eager": given.eager,
            "environment": {"VLLM_CPU_OMP_THREADS_BIND": given.bind},
        }
        paths = [str(HERE.parents[1] / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
        variables = {"OMP_NUM_THREADS": str(given.threads), "PYTHONPATH": os.pathsep.join(paths)}
        turn = Turn(mode, given.vllm_python, HERE / "vllm_subject.py", settings, **variables)
        stack.callback(turn.close)
        found |= {name: (turn, name) for name in given.methods} if mode == "forerun" else {mode: (turn, "")}
    return found


def measured(
    given: argparse.Namespace, found: dict[str, tuple[Turn, str]], prompts: list[list[int]]
) -> dict[tuple[str, int], list[dict[str, Any]]]:
    """The turns of each subject at each size, the warming one first."""
    turns: dict[tuple[str, int], list[dict[str, Any]]] = {}
    names = list(found)
    for repeat in range(given.repeats + 1):
        for size, count in zip(given.sizes, given.prompts, strict=True):
            shift = repeat % len(names)
            for name in names[shift:] + names[:shift]:
                turn, method = found[name]
                sleep(REST_SECONDS)
                told = turn.ask(
                    prompts=prompts[:count],
                    at_once=size,
                    new=given.new,
                    forerun=METHODS.get(method),
                    name=method,
                )
                turns.setdefault((name, size), []).append(told)
        print(f"turn {repeat} of {given.repeats}", file=sys.stderr)
    return turns


def rows_of(turns: dict[tuple[str, int], list[dict[str, Any]]]) -> list[dict[str, Any]]:
    rates = {key: [sum(map(len, one["ids"])) / one["seconds"] for one in told] for key, told in turns.items()}
    rows = []
    for (name, size), told in turns.items():
        warm_up, *own = rates[name, size]
        plain, texts = rates["plain", size][1:], turns["plain", size][-1]["ids"]
        rows.append(
            {
                "subject": name,
                "at_once": size,
                "tokens_per_second": round(median(own), 1),
                "over_plain": round(median(a / b for a, b in zip(own, plain, strict=True)), 3),
                "each_over_plain": [round(a / b, 3) for a, b in zip(own, plain, strict=True)],
                "each": [round(rate, 1) for rate in own],
                "warm_up": round(warm_up, 1),
                "steps": [one["steps"] for one in told],
                "drafted": [one.get("drafted") for one in told],
                "accepted": [one.get("accepted") for one in told],
                "tokens": [sum(map(len, one["ids"])) for one in told],
                "equal_to_plain": sum(a == b for a, b in zip(told[-1]["ids"], texts, strict=True)),
                "prompts": len(texts),
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("suite", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--vllm-python", required=True)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--sizes", type=numbers, default=[1, 8, 16])
    parser.add_argument("--prompts", type=numbers, default=[6, 16, 32], help="how many, for each of the sizes")
    parser.add_argument("--new", type=int, default=80)
    parser.add_argument("--max-prompt", type=int, default=300)
    parser.add_argument("--longest", type=int, default=8, help="a draft of the proposer")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--engines", type=names(ENGINES), default=list(ENGINES))
    parser.add_argument("--methods", type=names(METHODS), default=BY_DEFAULT, help="of the proposer")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument(
        "--bind", default="nobind", help="VLLM_CPU_OMP_THREADS_BIND; native/vllm-threads-*.json say why"
    )
    parser.add_argument("--eager", action="store_true", help="without vLLM's compilation: a faster start")
    given = parser.parse_args()
    if "plain" not in given.engines:
        parser.error("--engines must have plain, which the others are compared with")
    before = os.getloadavg()
    prompts, _ = picked(load(given.model), given.suite, max(given.prompts), given.max_prompt)
    with ExitStack() as stack:
        found = opened(given, given.max_prompt + given.new + 64, stack)
        rows = rows_of(measured(given, found, prompts))
        about = {turn.name: turn.about for turn, _ in found.values()}
    report = {
        "command": shlex.join(["python", *sys.argv]),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "hardware": hardware(),
        "cores": os.cpu_count(),
        "threads": given.threads,
        "load": [round(value, 1) for value in (*before, *os.getloadavg())],
        "model": given.model,
        "dtype": given.dtype,
        "new_tokens": given.new,
        "longest": given.longest,
        "prompt_tokens": [len(prompt) for prompt in prompts],
        "methods": {name: METHODS[name] for name in given.methods},
        "subjects": about,
        "rows": rows,
    }
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    for row in rows:
        drafted = row["drafted"][-1]
        accepted = "" if not drafted else f", {row['accepted'][-1] / drafted:.0%} of {drafted} drafted accepted"
        print(
            f"{row['subject']:15} {row['at_once']:3} at once {row['tokens_per_second']:8.1f} tokens/s, "
            f"{row['over_plain']:.3f} x plain, equal {row['equal_to_plain']} of {row['prompts']}{accepted}"
        )


if __name__ == "__main__":
    main()
