"""Milliseconds of a forward by rows: native forms, torch's operations on the same weights, llama.cpp on GGUF files.

    python benchmarks/native/forwards.py smollm2 OUT.json --forms int4/16,int4/8,bfloat16 \\
        --llama q4_0=.peers/models/smollm2-q4_0.gguf --llama-python .peers/llamacpp/bin/python

Every subject is a process of its own. They measure by turns, a block each, in an order that moves on (turns.py says why).
A form is int4, int8, bfloat16 or float32, with the bits of activations after a slash. Ratios hold within one run only.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from statistics import median, quantiles
from time import sleep
from typing import Any

from forms import form_of, numbers
from turns import REST_SECONDS, Turn

from forerun.bench.gguf_format import gguf_format
from forerun.engine.measurement_conditions import hardware
from forerun.models.lean.native.library import SWITCH
from forerun.models.lean.native.machine import machine

HERE = Path(__file__).parent


def subjects(given: argparse.Namespace, stack: ExitStack) -> list[Turn]:
    settings = {"model": given.model, "threads": given.threads}
    threads = {"OMP_NUM_THREADS": str(given.threads)}
    made: list[Turn] = []

    def begin(name: str, python: str, file: str, own: dict[str, Any], **variables: str) -> None:
        print(f"opening {name}", file=sys.stderr)
        made.append(Turn(name, python, HERE / file, {**settings, **own}, **threads, **variables))
        stack.callback(made[-1].close)

    for text in given.forms:
        begin(f"native {text}", sys.executable, "our_forwards.py", {"form": form_of(text)}, **{SWITCH: given.level})
    for weights in dict.fromkeys(text.partition("/")[0] for text in given.forms):
        begin(f"torch {weights}", sys.executable, "our_forwards.py", {"form": form_of(weights)}, **{SWITCH: "off"})
    for pair in given.llama:
        name, _, file = pair.partition("=")
        context = max(given.prefixes) + max(given.rows) + 64
        begin(f"llama.cpp {name}", given.llama_python, "llama_forwards.py", {"model": file, "context": context})
        made[-1].about["file"], made[-1].about["format"] = Path(file).name, gguf_format(Path(file))
    return made


def measured(given: argparse.Namespace, turns: list[Turn]) -> list[dict[str, Any]]:
    times: dict[tuple[str, int, int], list[float]] = {}
    for block in range(given.blocks):
        for prefix in given.prefixes:
            shift = block % len(turns)
            for turn in turns[shift:] + turns[:shift]:
                sleep(REST_SECONDS)
                told = turn.ask(prefix=prefix, rows=given.rows, repeats=given.repeats, seed=100 * block)
                for rows, own in told.items():
                    times.setdefault((turn.name, prefix, int(rows)), []).extend(own)
        print(f"block {block + 1} of {given.blocks}", file=sys.stderr)
    one = {(name, prefix): median(own) for (name, prefix, rows), own in times.items() if rows == min(given.rows)}
    return [
        {
            "subject": name,
            "prefix": prefix,
            "rows": rows,
            "ms": round(median(own), 3),
            "quartiles": [round(value, 3) for value in quantiles(own)],
            "fastest": round(min(own), 3),
            "over_one_row": round(median(own) / one[name, prefix], 3),
        }
        for (name, prefix, rows), own in times.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("output", type=Path)
    parser.add_argument("--forms", type=lambda text: text.split(","), default=["int4/16", "int4/8", "bfloat16"])
    parser.add_argument("--level", default="", help="kernels by name, as FORERUN_NATIVE; the best ones if not given")
    parser.add_argument("--llama", action="append", default=[], metavar="NAME=FILE")
    parser.add_argument("--llama-python", default=".peers/llamacpp/bin/python")
    parser.add_argument("--rows", type=numbers, default=[1, 2, 4, 8, 16])
    parser.add_argument("--prefixes", type=numbers, default=[100, 800])
    parser.add_argument("--blocks", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=4, help="forwards of each width in a block")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--note", default="", help="what else ran on the machine")
    given = parser.parse_args()
    load_before = os.getloadavg()
    with ExitStack() as stack:
        turns = subjects(given, stack)
        found = measured(given, turns)
        about = {turn.name: turn.about for turn in turns}
    bandwidth = machine().bandwidth
    report = {
        "command": shlex.join(["python", *sys.argv]),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "hardware": hardware(),
        "cores": os.cpu_count(),
        "threads": given.threads,
        "load": [round(value, 1) for value in (*load_before, *os.getloadavg())],
        "bandwidth": bandwidth,
        "repeats": given.blocks * given.repeats,
        "note": given.note,
        "subjects": about,
        "forwards": found,
    }
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    show(found, given)


def show(found: list[dict[str, Any]], given: argparse.Namespace) -> None:
    for prefix in given.prefixes:
        print(f"\nafter {prefix} tokens: ms (over one row) for {', '.join(map(str, given.rows))} rows")
        for name in dict.fromkeys(one["subject"] for one in found):
            line = [one for one in found if (one["subject"], one["prefix"]) == (name, prefix)]
            cells = [
                f"{one['ms']:8.2f} ({one['over_one_row']:.2f})" for one in sorted(line, key=lambda one: one["rows"])
            ]
            print(f"{name:22}", *cells)


if __name__ == "__main__":
    main()
