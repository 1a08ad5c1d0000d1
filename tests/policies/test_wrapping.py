"""What holds another policy hands on what it is told, and is trained for what that one is trained for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from forerun.core.identity import Identity, Pair
from forerun.core.policy import LengthPolicy
from forerun.core.values import Draft, Round, Step, Verdict
from forerun.errors import UnsupportedOption
from forerun.policies.fixed import Fixed
from forerun.policies.wrapping import Wrapping, inner_policy

ROUND = Round((1,), Draft(), Verdict((), (1,)), 3)


@dataclass
class Noting(LengthPolicy):
    trained_for: Pair | None = None
    noted: list[Any] = field(default_factory=list)

    def begin(self, unread: int, room: int, copies: bool = False) -> None:
        self.noted.append(("begin", unread, room, copies))

    def should_stop(self, steps: Sequence[Step]) -> bool:
        return False

    def leaves_out(self, steps: Sequence[Step]) -> bool:
        self.noted.append("left out")
        return True

    def observe(self, steps: Sequence[Step], round: Round) -> None:
        self.noted.append((steps, round))

    def end(self) -> None:
        self.noted.append("end")


class Plain(Wrapping):
    def should_stop(self, steps: Sequence[Step]) -> bool:
        return True


def test_the_inner_policy_is_told_everything() -> None:
    inner = Noting()
    outer = Plain(inner)
    outer.begin(4, 20, True)
    assert outer.leaves_out(())
    outer.observe((), ROUND)
    outer.end()

    assert inner.noted == [("begin", 4, 20, True), "left out", ((), ROUND), "end"]


def test_it_is_trained_for_what_the_inner_one_is_trained_for() -> None:
    pair = Pair(Identity("llama", 4, 32, 97, "a", ""), "draft")

    assert Plain(Noting(pair)).trained_for == pair
    assert Plain(Noting()).trained_for is None


def test_the_inner_policy_takes_its_own_options() -> None:
    made = inner_policy("bounded", "fixed", {"k": 3})()

    assert isinstance(made, Fixed)
    assert not made.should_stop([Step((1,), (-1,), (None,))] * 2)
    assert made.should_stop([Step((1,), (-1,), (None,))] * 3)


def test_an_option_that_it_has_not_is_refused() -> None:
    with pytest.raises(UnsupportedOption, match="depth"):
        inner_policy("bounded", "fixed", {"depth": 3})


@pytest.mark.parametrize("name", ["bounded", "governor"])
def test_a_policy_can_not_hold_itself(name: str) -> None:
    with pytest.raises(ValueError, match=f"another policy than '{name}' itself"):
        inner_policy(name, name, {})
