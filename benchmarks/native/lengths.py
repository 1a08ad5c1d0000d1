"""A suite of two kinds of prompt out of another one: short ones, and ones of about 800 tokens.

    python benchmarks/native/lengths.py smollm2 spec_bench.jsonl OUT.jsonl [--each 8]

The lengths are those of the whole prompt, chat template included; what a file has nearest to 800 tokens is taken.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from forerun import load
from forerun.engine.prompts.questions import Question, has_chat_template

SHORT, LONG = 100, 800


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("suite", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--each", type=int, default=8)
    given = parser.parse_args()
    tokenizer = load(given.model).tokenizer
    chat = has_chat_template(tokenizer)
    lines = [json.loads(line) for line in given.suite.read_text(encoding="utf-8").splitlines() if line.strip()]
    lengths = [len(Question((entry["turns"][0],)).ids((), chat, tokenizer)) for entry in lines]
    known = list(zip(lengths, lines, strict=True))
    # of as many kinds as there are, in the file's order, so that the choice is no matter of luck
    by_turns = sorted((pair for pair in known if pair[0] <= SHORT), key=lambda pair: pair[1]["question_id"] % 10)
    nearest = sorted(known, key=lambda pair: abs(pair[0] - LONG))
    chosen = {"short": by_turns[: given.each], f"{LONG} tokens": nearest[: given.each]}
    made = [
        {"question_id": entry["question_id"], "category": name, "turns": entry["turns"][:1]}
        for name, pairs in chosen.items()
        for _, entry in pairs
    ]
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text("".join(json.dumps(entry) + "\n" for entry in made), encoding="utf-8")
    for name, pairs in chosen.items():
        print(name, [length for length, _ in pairs], [entry["category"] for _, entry in pairs])


if __name__ == "__main__":
    main()
