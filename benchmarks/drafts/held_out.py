"""The prompts whose answers a draft was not trained on, as a suite for `forerun bench`.

Run: python benchmarks/drafts/held_out.py OUT.jsonl smollm2 --data ANSWERS.jsonl ... --prompts PROMPTS.jsonl ...

Takes the same answers as `forerun train draft`, in the same order, and its held-out share and seed.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from forerun.engine.prompts.forms import encode
from forerun.engine.prompts.questions import has_chat_template, read_questions
from forerun.models.loading.load import open_module
from forerun.train.data.examples import read_examples, split


def main(given: argparse.Namespace) -> None:
    tokenizer = open_module(given.model, device="cpu").tokenizer
    examples = [one for file in given.data for one in read_examples(Path(file), tokenizer)]
    _, out = split(examples, given.held_out, given.seed)
    asked = {one.ids[: one.start] for one in out}
    chat = has_chat_template(tokenizer)
    found: dict[tuple[int, ...], tuple[str, ...]] = {}
    for file in given.prompts:
        for question in read_questions(Path(file)):
            found.setdefault(tuple(encode(question.prompt((), chat), tokenizer)), question.turns)
    turns = [found[ids][:1] for ids in sorted(asked & found.keys())]
    lines = ({"question_id": n, "category": "held_out", "turns": list(one)} for n, one in enumerate(turns))
    Path(given.out).write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")
    print(f"{len(turns)} of {len(asked)} held-out prompts in {given.out}")


if __name__ == "__main__":
    flags = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    flags.add_argument("out")
    flags.add_argument("model")
    flags.add_argument("--data", action="append", required=True)
    flags.add_argument("--prompts", action="append", required=True)
    flags.add_argument("--held-out", type=float, default=0.02)
    flags.add_argument("--seed", type=int, default=0)
    main(flags.parse_args())
