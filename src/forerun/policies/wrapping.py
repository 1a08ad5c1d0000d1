"""What policies share that hold another one within bounds: which one it is, and what it is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..core.policy import LengthPolicy
from ..core.values import Round, Step
from .base import POLICIES, PolicyFactory


def inner_policy(name: str, inner: str, options: Mapping[str, Any]) -> PolicyFactory:
    """The factory of the policy that `name` wraps. Raises ValueError where that is the wrapping one itself."""
    if inner == name:
        raise ValueError(f"inner must be another policy than {name!r} itself")
    factory: PolicyFactory = POLICIES.check(inner, options).build(**options)
    return factory


class Wrapping(LengthPolicy):
    """Another policy, which learns what this one learns."""

    def __init__(self, inner: LengthPolicy) -> None:
        self.trained_for = inner.trained_for
        self._inner = inner

    @property
    def expected(self) -> tuple[float, float] | None:  # type: ignore[override]
        return self._inner.expected

    def begin(self, unread: int, room: int, copies: bool = False) -> None:
        self._inner.begin(unread, room, copies)

    def leaves_out(self, steps: Sequence[Step]) -> bool:
        return self._inner.leaves_out(steps)

    def ahead(self, steps: Sequence[Step]) -> int:
        return self._inner.ahead(steps)

    def observe(self, steps: Sequence[Step], round: Round) -> None:
        self._inner.observe(steps, round)

    def end(self) -> None:
        self._inner.end()
