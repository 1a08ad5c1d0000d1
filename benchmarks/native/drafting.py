"""What drafting by text costs: processor microseconds a drafted token and a round, and memory, by length of the text.

    python benchmarks/native/drafting.py smollm2 OUT.json [--lengths 1000,10000,100000]

The text is code of installed packages; `suffix` drafts in it, in a history of as many tokens, and `corpus` in a corpus of as
many. After each round the text goes on by its own next tokens. Times are those of the process, so other work on the machine
counts little.
"""

from __future__ import annotations

import argparse
import gc
import json
import shlex
import sys
import tempfile
import tracemalloc
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

from forms import numbers

from forerun import Engine, load
from forerun.core.chance import Seeded
from forerun.core.drafter import Drafter
from forerun.core.values import ROOT, Context, Draft, Round, Step, Verdict
from forerun.drafters.corpora.files import build_corpus
from forerun.engine.measurement_conditions import conditions

ROUNDS, MOST = 400, 8
PROMPT = 200  # tokens of the text that is continued where the history or a corpus is long


def code(tokenizer: Any, count: int) -> list[int]:
    """So many tokens of the packages beside transformers, in order of their names."""
    import transformers

    ids: list[int] = []
    for file in sorted(Path(transformers.__file__).parents[1].glob("t*/**/*.py")):
        ids += tokenizer(file.read_text(encoding="utf-8", errors="replace"), verbose=False).input_ids
        if len(ids) >= count:
            return ids[:count]
    raise SystemExit(f"the packages hold {len(ids)} tokens of code, fewer than {count}")


def asked(ids: Sequence[int]) -> Context:
    return Context(list(ids), Seeded(0), max_new_tokens=10**9)


def pulled(drafter: Drafter, context: Context) -> list[Step]:
    """The first steps of a draft, as the loop pulls them."""
    source = drafter.draft(context)
    steps: list[Step] = []
    try:
        while len(steps) < MOST:
            anext(source).send(None)
    except StopIteration as step:
        steps.append(step.value)
        return [*steps, *_more(source, MOST - 1)]
    except StopAsyncIteration:
        pass
    return steps


def _more(source: Any, most: int) -> Iterator[Step]:
    for _ in range(most):
        try:
            anext(source).send(None)
        except StopIteration as step:
            yield step.value
        except StopAsyncIteration:
            return
    try:
        source.aclose().send(None)
    except StopIteration:
        pass


def rounds(drafter: Drafter, begun: Sequence[int], following: Sequence[int]) -> dict[str, Any]:
    """Of rounds that emit the text's own next tokens. The first one reads the text and stands apart."""
    context = asked(begun)
    before = process_time()
    pulled(drafter, context)
    reading, at = process_time() - before, 0
    spent: list[float] = []
    counts: list[int] = []
    accepted = 0
    for _ in range(ROUNDS):
        before = process_time()
        steps = pulled(drafter, context)
        tokens = tuple(step.tokens[0] for step in steps)
        own = following[at : at + len(tokens) + 1]
        right = next((i for i, token in enumerate(tokens) if token != own[i]), len(tokens))
        emitted = tuple(own[: right + 1])
        verdict = Verdict(tuple(range(right)), emitted)
        draft = Draft(tokens, tuple(range(ROOT, len(tokens) - 1)), (None,) * len(tokens))
        start = len(context.ids)
        between = process_time()
        context.extend(emitted)
        made = Round(emitted, draft, verdict, start)
        again = process_time()
        drafter.learn(context, made, None)  # type: ignore[arg-type]
        spent.append(1e6 * (process_time() - again + between - before))
        counts.append(len(tokens))
        accepted += right
        at += len(emitted)
    return {
        "reading_us_a_token": round(1e6 * reading / len(begun), 2),
        "us_a_round": {"fastest": round(min(spent), 1), "median": round(median(spent), 1)},
        "us_an_emitted_token": round(sum(spent) / (accepted + ROUNDS), 1),
        "us_a_verified_row": round(sum(spent) / (sum(counts) + ROUNDS), 1),
        "us_a_round_by_drafted": {
            n: round(median([us for us, count in zip(spent, counts, strict=True) if count == n]), 1)
            for n in sorted({*counts})
        },
        "tokens_a_round": round(1 + accepted / ROUNDS, 3),
        "drafted_a_round": round(sum(counts) / ROUNDS, 3),
    }


def remembered(engine: Engine, answers: Sequence[int], most: int) -> tuple[Any, int]:
    """A factory of `suffix` whose history was told all of these, a thousand tokens an answer, and the bytes it took."""
    gc.collect()
    tracemalloc.start()
    make = engine.using("suffix", drafter_options={"history": most}).drafter
    for at in range(0, len(answers), 1000):
        one = make(None)
        context = asked([0])
        pulled(one, context)
        context.extend(tuple(answers[at : at + 1000]))
        one.close()
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return make, taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("output", type=Path)
    parser.add_argument("--lengths", type=numbers, default=[1000, 10_000, 100_000])
    given = parser.parse_args()
    engine = load(given.model, weights="int4", drafter="none")
    longest = max(given.lengths)
    spare = ROUNDS * (MOST + 1) + PROMPT
    ids = code(engine.tokenizer, 3 * longest + spare)
    end = ids[-spare:]
    identity = (engine.identity.vocabulary, engine.identity.vocab_size)
    report: dict[str, Any] = {
        **conditions(engine, shlex.join(["python", *sys.argv])),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "rounds": ROUNDS,
        "most_drafted": MOST,
        "lengths": {},
    }
    for length in given.lengths:
        text = ids[:length]
        tracemalloc.start()
        index = engine.using("suffix").drafter(None)  # type: ignore[arg-type]
        pulled(index, asked(text))
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        make, kept = remembered(engine, text, 2 * length)
        _, bounded = remembered(engine, ids[: 3 * length], length)
        with tempfile.TemporaryDirectory() as folder:
            build_corpus([text], Path(folder) / "corpus", identity)
            corpus = engine.using("corpus", drafter_options={"path": str(Path(folder) / "corpus")}).drafter(None)  # type: ignore[arg-type]
            own = engine.using("suffix").drafter(None)  # type: ignore[arg-type]
            report["lengths"][length] = {
                "suffix in the text": rounds(own, text, ids[length : length + spare]),
                "suffix in a history": rounds(make(None), end[:PROMPT], end[PROMPT:]),
                "corpus": rounds(corpus, end[:PROMPT], end[PROMPT:]),
                "bytes a token": {
                    "text": round(held / length, 1),
                    "history of twice as many": round(kept / length, 1),
                    "history that was told three times what it keeps, by what it keeps": round(bounded / length, 1),
                },
            }
        given.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
        print(length, json.dumps(report["lengths"][length]), flush=True)


if __name__ == "__main__":
    main()
