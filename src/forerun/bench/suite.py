"""A suite: prompts with categories, one JSON object per line, {"question_id", "category", "turns"}, as in Spec-Bench.

MT-Bench's eight categories, of a few prompts each, are pooled. A benchmark asks the first turn of each item, or every one as
a prompt of its own: what the model says in between is then answered plainly before anything is measured. In both cases
every backend answers the very same prompts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from pathlib import Path

from ..engine.engine import Engine
from ..engine.prompts.questions import Question, questions_in
from ..engine.request import RequestOptions

POOLED = "mt_bench"
SMALL = frozenset({"writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities"})


@dataclass(frozen=True, slots=True)
class Item:
    """One prompt of a suite. kind: the category in the file; category: the one it is counted under."""

    id: str
    kind: str
    question: Question

    @property
    def category(self) -> str:
        return POOLED if self.kind in SMALL else self.kind


def read_suite(path: Path, per_category: int | None = None, categories: Sequence[str] = ()) -> list[Item]:
    """The items of a suite file, up to per_category of each category; categories: only these, all if empty.

    A pooled category takes from its small ones by turns. Raises ValueError that names a bad line, and for a category that
    the suite doesn't have.
    """
    if per_category is not None and per_category < 1:
        raise ValueError(f"per-category must be at least 1, got {per_category}")
    by_category: dict[str, dict[str, list[Item]]] = {}
    for item in _items(path):
        by_category.setdefault(item.category, {}).setdefault(item.kind, []).append(item)
    for category in categories:
        if category not in by_category:
            raise ValueError(f"{path} has no category {category!r}; it has: {', '.join(by_category)}")
    picked: list[Item] = []
    for category, kinds in by_category.items():
        if not categories or category in categories:
            in_turn = (item for item in chain.from_iterable(zip_longest(*kinds.values())) if item is not None)
            picked += list(in_turn)[:per_category]
    return picked


def turns_of(
    engine: Engine, items: Sequence[Item], options: RequestOptions, chat: bool
) -> tuple[list[Item], list[list[int]]]:
    """Each turn as an item, 7.2 being the second one of item 7, and the ids of its prompt.

    options are those of the answers in between. Raises UnsupportedOption where several turns have no chat template.
    """
    asked: list[Item] = []
    prompts: list[list[int]] = []
    between: RequestOptions = {**options, "speculate": False, "remember": False}
    for item in items:
        turns, answers = item.question.turns, list[str]()
        for number in range(1, len(turns) + 1):
            prompts.append(item.question.ids(answers, chat, engine.tokenizer))
            asked.append(replace(item, id=f"{item.id}.{number}") if len(turns) > 1 else item)
            if number < len(turns):
                answers.append(engine.generate(prompts[-1], **between).text or "")
    engine.forget()
    return asked, prompts


def fingerprint(path: Path) -> str:
    """16 hex digits of the file's SHA-256, so that a result says which prompts it was measured on."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def _items(path: Path) -> list[Item]:
    return [
        Item(str(entry.get("question_id", number)), str(entry.get("category", "all")), question)
        for number, (_, entry, question) in enumerate(questions_in(path), start=1)
    ]
