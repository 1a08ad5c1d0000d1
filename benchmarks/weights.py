"""What small weights change: perplexity of the float32 model's own answers under each form of the weights.

Run: python benchmarks/weights.py SUITE.jsonl [OUT.json]. Ten prompts a category, up to 96 tokens an answer, greedy. The
answers are the float32 model's, so its perplexity is the least; agreement is how often a form's first choice is theirs.
The last line is JSON.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import torch

from forerun import Engine, load
from forerun.bench.suite import fingerprint, read_suite
from forerun.core.drive import drive
from forerun.core.forward import Rows
from forerun.core.values import ROOT
from forerun.engine.measurement_conditions import conditions
from forerun.engine.prompts.forms import encode
from forerun.models.packed.sequence import Sequence

FORMS = ("float32", "bf16", "int8", "int4")
PER_CATEGORY = 10
NEW = 96
LONGEST = 1024


def judged(engine: Engine, prompt: list[int], answer: tuple[int, ...]) -> tuple[float, int]:
    """The summed negative log-probability of an answer, and how many of its tokens are the first choice."""

    async def after_prompt() -> AsyncGenerator[Rows]:
        sequence = Sequence(engine.runner)
        if len(prompt) > 1:
            await sequence.sync(prompt[:-1])
        yield await sequence.complete([prompt[-1], *answer[:-1]], range(ROOT, len(answer) - 1))

    logits = next(drive(after_prompt())).logits.float()
    tokens = torch.tensor(answer)
    own = logits.log_softmax(-1).gather(1, tokens[:, None]).sum()
    return -float(own), int((logits.argmax(-1) == tokens).sum())


def main(suite: str, out: str | None) -> None:
    exact = load("smollm2", weights="float32")
    prompts = [
        encode([{"role": "user", "content": item.question.turns[0]}], exact.tokenizer)
        for item in read_suite(Path(suite), PER_CATEGORY)
    ]
    prompts = [prompt for prompt in prompts if len(prompt) <= LONGEST]
    answers = [result.ids for result in exact.generate(prompts, max_new_tokens=NEW, max_batch=16)]
    report: dict[str, Any] = {}
    for form in FORMS:
        engine = exact if form == "float32" else load("smollm2", weights=form)
        pairs = [judged(engine, prompt, answer) for prompt, answer in zip(prompts, answers, strict=True)]
        total = sum(len(answer) for answer in answers)
        report[form] = {
            "perplexity": float(torch.tensor(sum(loss for loss, _ in pairs) / total).exp()),
            "agreement": sum(same for _, same in pairs) / total,
            "megabytes": engine.runner.nbytes / 1e6,  # type: ignore[attr-defined]
        }
        print(form, report[form], file=sys.stderr)
    about = conditions(exact, shlex.join(["python", *sys.argv]))
    text = json.dumps(
        {**about, "suite": fingerprint(Path(suite)), "prompts": len(prompts), "answer_tokens": total, "weights": report}
    )
    if out is not None:
        Path(out).write_text(json.dumps(json.loads(text), indent=1) + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None)
