"""Tokens a second of 1, 8 and 16 prompts at once: native, torch's operations on the same weights, vLLM.

    python benchmarks/native/batches.py smollm2 SUITE OUT.json --vllm-python .peers/vllm/bin/python

Every subject is a process of its own, and they answer by turns (turns.py says why). What answers of one token take is taken
off that of whole answers, so that nobody's reading of prompts counts. All answers are of the same length. Ratios hold within
one run only.
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
from statistics import median
from time import sleep
from typing import Any

from forms import form_of, numbers, picked
from turns import REST_SECONDS, Turn

from forerun import load
from forerun.bench.peer_models import peer_models
from forerun.engine.measurement_conditions import hardware
from forerun.models.lean.native.library import SWITCH

HERE = Path(__file__).parent
OURS = ("plain", "lookup")
VLLM = ("plain", "ngram", "ngram-3")


def subjects(given: argparse.Namespace, stack: ExitStack) -> dict[str, tuple[Turn, str]]:
    """By name, the process and what it is to do: one process of ours has every method, one of vLLM's has one."""
    found: dict[str, tuple[Turn, str]] = {}
    settings = {"model": given.model, "threads": given.threads}

    def begin(name: str, python: str, file: str, own: dict[str, Any], modes: tuple[str, ...], **variables: str) -> None:
        print(f"opening {name}", file=sys.stderr)
        threads = {"OMP_NUM_THREADS": str(given.threads)}
        turn = Turn(name, python, HERE / file, {**settings, **own}, **threads, **variables)
        stack.callback(turn.close)
        found.update({f"{name} {mode}".strip(): (turn, mode) for mode in modes})

    for form in given.forms:
        for kernels, level in (("native", ""), ("torch", "off")):
            own = {"form": form_of(form if kernels == "native" else form.partition("/")[0])}
            begin(f"{kernels} {form}", sys.executable, "our_batches.py", own, OURS, **{SWITCH: level})
    if given.vllm_python:
        model = peer_models(given.model, "bfloat16")["hf"]
        for mode in dict.fromkeys(("plain", *given.vllm_modes)):
            own = {
                "model": model,
                "mode": mode,
                "context": given.max_prompt + given.new + 64,
                "batch": max(given.sizes),
            }
            begin(f"vllm bfloat16 {mode}", given.vllm_python, "vllm_batches.py", own, ("",))
    return found


def measured(
    given: argparse.Namespace, found: dict[str, tuple[Turn, str]], prompts: list[list[int]]
) -> list[dict[str, Any]]:
    times: dict[tuple[str, int], list[tuple[float, float]]] = {}
    texts: dict[tuple[str, int], list[list[int]]] = {}
    names = list(found)
    for repeat in range(-1, given.repeats):  # the first warms up
        for size in given.sizes:
            shift = repeat % len(names)
            for name in names[shift:] + names[:shift]:
                turn, mode = found[name]
                sleep(REST_SECONDS)
                whole = turn.ask(prompts=prompts[:size], new=given.new, mode=mode)
                first = turn.ask(prompts=prompts[:size], new=1, mode=mode)
                if repeat >= 0:
                    times.setdefault((name, size), []).append((whole["seconds"], first["seconds"]))
                    texts[name, size] = whole["ids"]
        print(f"repeat {repeat + 1} of {given.repeats}", file=sys.stderr)
    rows = []
    for (name, size), own in times.items():
        decoded = size * (given.new - 1)
        rates = [decoded / (whole - first) for whole, first in own]
        plain = texts[name.replace("lookup", "plain").replace(" ngram-3", " plain").replace(" ngram", " plain"), size]
        rows.append(
            {
                "subject": name,
                "prompts": size,
                "tokens_per_second": round(median(rates), 1),
                "each": [round(rate, 1) for rate in rates],
                "seconds": [[round(value, 4) for value in pair] for pair in own],
                "equal_to_plain": sum(a == b for a, b in zip(texts[name, size], plain, strict=True)),
                "equal_to_alone": sum(
                    a == b for a, b in zip(texts[name, size], texts[name, min(given.sizes)], strict=False)
                ),
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("suite", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--forms", type=lambda text: text.split(","), default=["int4", "bfloat16"])
    parser.add_argument("--sizes", type=numbers, default=[1, 8, 16])
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--max-prompt", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--vllm-python", default="", help="vLLM doesn't take part if not given")
    parser.add_argument("--vllm-modes", type=lambda text: text.split(","), default=list(VLLM))
    given = parser.parse_args()
    load_before = os.getloadavg()
    prompts, _ = picked(load(given.model), given.suite, max(given.sizes), given.max_prompt)
    with ExitStack() as stack:
        found = subjects(given, stack)
        rows = measured(given, found, prompts)
        about = {turn.name: turn.about for turn, _ in found.values()}
    report = {
        "command": shlex.join(["python", *sys.argv]),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "hardware": hardware(),
        "cores": os.cpu_count(),
        "threads": given.threads,
        "load": [round(value, 1) for value in (*load_before, *os.getloadavg())],
        "new_tokens": given.new,
        "prompt_tokens": [len(prompt) for prompt in prompts],
        "subjects": about,
        "batches": rows,
    }
    given.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    for row in rows:
        print(
            f"{row['subject']:26} {row['prompts']:3} prompts {row['tokens_per_second']:8.1f} tokens/s, equal to plain "
            f"{row['equal_to_plain']}, to alone {row['equal_to_alone']}"
        )


if __name__ == "__main__":
    main()
