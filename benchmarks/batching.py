"""Eight prompts at once against one after the other, on the bundled model. Run: python benchmarks/batching.py [OUT.json]

Plain decoding in bfloat16, alternating; equality in float32, plain and with every kind of draft. The last line is JSON.
"""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from forerun import Engine, load
from forerun.engine.measurement_conditions import conditions

TOPICS = ("the sea", "bread", "mountains", "a lost key", "trains", "winter", "an old clock", "a garden")
PROMPTS = [[{"role": "user", "content": f"Write a short paragraph about {topic}."}] for topic in TOPICS]
NEW = 64
REPEATS = 3


def timed(engine: Engine, together: bool) -> tuple[float, list[tuple[int, ...]]]:
    """Tokens a second over all prompts, prefill included, and what was written."""
    engine.forget()
    begun = perf_counter()
    if together:
        results = engine.generate(PROMPTS, max_new_tokens=NEW, ignore_eos=True, max_batch=len(PROMPTS))
    else:
        results = [engine.generate(prompt, max_new_tokens=NEW, ignore_eos=True) for prompt in PROMPTS]
    return len(PROMPTS) * NEW / (perf_counter() - begun), [result.ids for result in results]


def measured(engine: Engine) -> dict[str, Any]:
    timed(engine, together=True)
    runs = [(timed(engine, together=False), timed(engine, together=True)) for _ in range(REPEATS)]
    factors = [batch[0] / single[0] for single, batch in runs]
    return {
        "single_tokens_per_second": median(single[0] for single, _ in runs),
        "batch_tokens_per_second": median(batch[0] for _, batch in runs),
        "factor": median(factors),
        "factors": factors,
        "identical": all(single[1] == batch[1] for single, batch in runs),
    }


def main(out: str | None) -> None:
    lowered = load("smollm2", dtype="bfloat16")
    report: dict[str, Any] = {"bfloat16": {"none": measured(lowered)}}
    about = conditions(lowered, shlex.join(["python", *sys.argv]))
    exact = load("smollm2", dtype="float32")
    methods = {
        "none": exact,
        "lookup": exact.using("lookup", "heuristic"),
        "self exit_layer=15": exact.using("self", drafter_options={"exit_layer": 15}, policy_options={"k": 2}),
    }
    report["float32"] = {name: measured(engine) for name, engine in methods.items()}
    text = json.dumps({**about, "new_tokens": NEW, "prompts": len(PROMPTS), "dtypes": report})
    if out is not None:
        Path(out).write_text(json.dumps(json.loads(text), indent=1) + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
