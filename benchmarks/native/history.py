"""Whether a shared history changes a text: many prompts in any order and company, through one engine that remembers.

    python benchmarks/native/history.py smollm2 SUITE OUT.json [--count 200] [--new 16] [--form int4]

Plain decoding answers each prompt alone. Then `suffix` and `recycle` in a cascade answer all of them in one shuffled order
after the other, so many at once, with all that they learnt and remembered before.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import torch
from forms import form_of, numbers, picked

from forerun import load
from forerun.bench.suite import fingerprint
from forerun.engine.measurement_conditions import conditions
from forerun.engine.request import RequestOptions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("suite", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--form", default="int4")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--max-prompt", type=int, default=1600)
    parser.add_argument("--new", type=int, default=16)
    parser.add_argument("--companies", type=numbers, default=[8, 1], help="how many are answered at once, by turn")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    engine = load(given.model, drafter="none", **form_of(given.form))
    prompts, _ = picked(engine, given.suite, given.count, given.max_prompt)
    options: RequestOptions = {"max_new_tokens": given.new}
    plain = [engine.generate(prompt, **options).ids for prompt in prompts]
    sharing = engine.using("cascade", "fixed", drafter_options={"of": "suffix,recycle"}, policy_options={"k": 4})
    turns: list[dict[str, Any]] = []
    for turn, company in enumerate(given.companies):
        order = list(range(len(prompts)))
        Random(turn).shuffle(order)
        found = list(sharing.each(((prompts[number], options) for number in order), max_batch=company))
        stats = [result.stats for _, result in found]
        turns.append(
            {
                "at_once": company,
                "identical": sum(result.ids == plain[order[place]] for place, result in found),
                "prompts": len(found),
                "tokens_per_round": round(sum(one.tokens for one in stats) / sum(one.rounds for one in stats), 3),
            }
        )
        print(turns[-1], flush=True)
    report = {
        **conditions(engine, shlex.join(["python", *sys.argv])),
        "kernels": engine.runner.kernels,
        "form": given.form,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "load": os.getloadavg(),
        "suite": {"file": given.suite.name, "sha256": fingerprint(given.suite)},
        "new_tokens": given.new,
        "turns": turns,
    }
    given.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
