"""A suite: prompts with categories, one JSON object per line, {"question_id", "category", "turns"}, as in Spec-Bench.

Only the first turn is used, so that every backend answers the very same prompt. MT-Bench's eight categories, of a few
prompts each, are pooled.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path

from ..engine.prompts.questions import Question, questions_in

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


def fingerprint(path: Path) -> str:
    """16 hex digits of the file's SHA-256, so that a result says which prompts it was measured on."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def _items(path: Path) -> list[Item]:
    return [
        Item(str(entry.get("question_id", number)), str(entry.get("category", "all")), question)
        for number, (_, entry, question) in enumerate(questions_in(path), start=1)
    ]
