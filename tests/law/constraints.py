"""Constraints on tables: which tokens may follow is a function of the text, and forced tokens come up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, final

from forerun.core.constraint import Constraint

Rule = Callable[[tuple[int, ...]], frozenset[int]]  # text -> the tokens that may follow it; none after its end


@final
class TableConstraint(Constraint):
    """allowed gives a set in the place of a tensor, which exact.restricted takes."""

    def __init__(self, rule: Rule) -> None:
        self.complete = False
        self._rule = rule
        self._text: tuple[int, ...] = ()

    def allowed(self, drafted: tuple[int, ...]) -> Any:
        return self._after(drafted) or None

    def permits(self, drafted: tuple[int, ...], token: int) -> bool:
        return token in self._after(drafted)

    def completes(self, drafted: tuple[int, ...]) -> bool:
        return not self._after(drafted)

    def forced(self, room: int) -> tuple[int, ...]:
        tokens: tuple[int, ...] = ()
        while len(tokens) < room and len(allowed := self._after(tokens)) == 1:
            tokens = (*tokens, *allowed)
        return tokens

    def emit(self, tokens: Sequence[int]) -> None:
        self.complete = self.completes(tuple(tokens))
        self._text += tuple(tokens)

    def _after(self, drafted: tuple[int, ...]) -> frozenset[int]:
        """None where a token before was forbidden, too."""
        text = (*self._text, *drafted)
        fine = all(text[place] in self._rule(text[:place]) for place in range(len(self._text), len(text)))
        return self._rule(text) if fine else frozenset()


def two_of_three(text: tuple[int, ...]) -> frozenset[int]:
    """A random set of two tokens, after token 0, which all tables begin with."""
    return frozenset(Random(f"two {text}").sample(range(3), 2)) if text else frozenset({0})


def often_forced(text: tuple[int, ...]) -> frozenset[int]:
    """One token or two."""
    random = Random(f"one or two {text}")
    return frozenset(random.sample(range(3), random.choice((1, 1, 2)))) if text else frozenset({0})


def soon_complete(text: tuple[int, ...]) -> frozenset[int]:
    """As two_of_three, until 2 was written after the beginning."""
    return frozenset() if 2 in text else two_of_three(text)


def constrained(rule: Rule) -> Callable[[], Constraint]:
    return lambda: TableConstraint(rule)
