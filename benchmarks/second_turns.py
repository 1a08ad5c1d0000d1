"""Second turns: how much of a conversation's prefix is computed again. Run: python benchmarks/second_turns.py SUITE [OUT]

Ten two-turn prompts of the suite, float32, 32 new tokens a turn. The second turn's answer is compared with that of an
engine that never saw the first. The last line is JSON.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from forerun import Engine, load
from forerun.bench.suite import fingerprint, read_suite
from forerun.core.forward import Rows
from forerun.engine.measurement_conditions import conditions
from forerun.engine.prompts.forms import encode
from forerun.models.packed.request import Request

NEW = 32
CONVERSATIONS = 10


class Counter:
    """Counts the rows of the prompt that an engine computes; the decoding rows are one or a few at a time."""

    def __init__(self, engine: Engine) -> None:
        self.rows = 0
        self._execute = engine.runner.execute
        engine.runner.execute = self.count  # type: ignore[method-assign]

    def count(self, requests: Sequence[Request]) -> list[Rows]:
        self.rows += sum(request.part.n for request in requests)
        return self._execute(requests)


def main(suite: str, out: str | None) -> None:
    engine = load("smollm2", dtype="float32", drafter="lookup", policy="heuristic")
    counter = Counter(engine)
    questions = [item.question.turns for item in read_suite(Path(suite)) if len(item.question.turns) > 1]
    rows: list[dict[str, Any]] = []
    for first, second, *_ in questions[:CONVERSATIONS]:
        chat = [{"role": "user", "content": first}]
        answer = engine.generate(chat, max_new_tokens=NEW).text
        chat += [{"role": "assistant", "content": answer}, {"role": "user", "content": second}]
        counter.rows = 0
        engine.generate(chat, max_new_tokens=1)
        reused = counter.rows
        continued = engine.generate(chat, max_new_tokens=NEW).ids
        engine.forget()
        fresh = engine.generate(chat, max_new_tokens=NEW).ids
        engine.forget()
        length = len(encode(chat, engine.tokenizer))
        rows.append({"prompt_tokens": length, "rows_computed": reused, "identical": continued == fresh})
        print(rows[-1], file=sys.stderr)
    about = conditions(engine, shlex.join(["python", *sys.argv]))
    share = sum(row["rows_computed"] for row in rows) / sum(row["prompt_tokens"] for row in rows)
    text = json.dumps(
        {**about, "suite": fingerprint(Path(suite)), "new_tokens": NEW, "computed_share": share, "conversations": rows}
    )
    if out is not None:
        Path(out).write_text(json.dumps(json.loads(text), indent=1) + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None)
