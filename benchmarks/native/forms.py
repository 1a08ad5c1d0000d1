"""Forms of a model by name, lists of numbers, and prompts of a suite, for the scripts of this folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from forerun import Engine
from forerun.bench.suite import read_suite
from forerun.engine.prompts.questions import Question, has_chat_template

SMALL = ("int4", "int8")


def form_of(text: str) -> dict[str, Any]:
    """What forerun.load is told: int4/8 is int4 weights and activations of 8 bits."""
    weights, _, bits = text.partition("/")
    form: dict[str, Any] = {"weights": weights} if weights in SMALL else {"dtype": weights}
    return {**form, "activations": int(bits)} if bits else form


def numbers(text: str) -> list[int]:
    """Whole numbers between commas, for a command line."""
    return [int(part) for part in text.split(",")]


def picked(engine: Engine, suite: Path, count: int, longest: int) -> tuple[list[list[int]], list[Question]]:
    """The first turns of a suite that take at most `longest` tokens, of each category by turns; as ids and as questions."""
    chat = has_chat_template(engine.tokenizer)
    by_category: dict[str, list[tuple[list[int], Question]]] = {}
    for item in read_suite(suite):
        question = Question(item.question.turns[:1])
        ids = question.ids((), chat, engine.tokenizer)
        if len(ids) <= longest:
            by_category.setdefault(item.category, []).append((ids, question))
    rounds = range(max(map(len, by_category.values())))
    in_turn = [own[turn] for turn in rounds for own in by_category.values() if turn < len(own)]
    if len(in_turn) < count:
        raise SystemExit(f"{suite} has {len(in_turn)} prompts of at most {longest} tokens, fewer than {count}")
    return [ids for ids, _ in in_turn[:count]], [question for _, question in in_turn[:count]]
