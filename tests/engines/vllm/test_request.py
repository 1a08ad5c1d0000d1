from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from forerun.core.drafter import Drafter
from forerun.core.forward import submit
from forerun.core.values import Context, Step, Timing
from forerun.engines.vllm.request import Request
from forerun.errors import UnsupportedOption

from .recording import Counting, UpTo

TIMED = Timing(draft=0.1, forward=1.0)


def request(ids: list[int] | None = None, most: int = 3, **given: Any) -> tuple[Request, Counting, UpTo]:
    drafter, policy = Counting(), UpTo(most)
    made = Request(drafter, policy, ids or [10, 11], 1, given.get("max_length", 100), frozenset({99}))
    return made, drafter, policy


def test_a_draft_is_as_long_as_its_policy_and_vllm_allow() -> None:
    assert request()[0].draft(8) == [12, 13, 14]
    assert request()[0].draft(2) == [12, 13]
    assert request(most=0)[0].draft(8) == []


def test_a_draft_ends_with_an_end_of_sequence() -> None:
    assert request([97, 98], most=5)[0].draft(8) == [99]


@pytest.mark.parametrize(
    ("new", "accepted", "drafted"),
    [
        ([50], 0, 3),
        ([12, 50], 1, 3),
        ([12, 13, 14, 15], 3, 3),
        ([12, 13, 14, 50], 3, 3),
        ([12], 0, 0),  # vLLM verified none of them
        ([12, 13], 1, 1),  # or one alone
    ],
)
def test_what_was_accepted_is_read_off_the_text(new: list[int], accepted: int, drafted: int) -> None:
    made, drafter, policy = request()
    made.draft(8)
    made.extend(new, TIMED)
    (round,) = policy.seen

    assert made.context.ids == [10, 11, *new]
    assert (len(round.verdict.path), len(round.draft), round.start, round.timing) == (accepted, drafted, 2, TIMED)
    assert round.tokens == tuple(new)
    assert drafter.learnt == [round]


def test_a_policy_that_asks_for_nothing_is_told_so() -> None:
    made, _, policy = request(most=0)
    made.draft(8)
    made.extend([12], TIMED)

    assert [round.held_back for round in policy.seen] == [True]


def test_rounds_in_which_nobody_drafts_and_calls_that_were_missed_say_nothing() -> None:
    made, drafter, policy = request()
    made.hold_back()
    made.extend([12], TIMED)
    made.draft(8)
    made.skip([13, 14])
    made.extend([15], TIMED)

    assert made.context.ids == [10, 11, 12, 13, 14, 15]
    assert policy.seen == drafter.learnt == []
    assert made.drafted == 0


def test_the_prompt_ends_before_what_was_written_first() -> None:
    assert request()[0].context.prompt_length == 1


def test_an_end_of_sequence_is_seen() -> None:
    made, _, _ = request()
    assert not made.ended
    made.extend([99], TIMED)
    assert made.ended


def test_its_end_is_told_once_to_both() -> None:
    made, drafter, policy = request()
    made.end()

    assert (drafter.closed, policy.ended) == (1, 1)


class WithModel(Drafter):
    async def draft(self, context: Context) -> AsyncGenerator[Step]:
        await submit(object())  # type: ignore[arg-type]
        yield Step((1,), (-1,), (None,))


def test_a_drafter_that_asks_for_a_forward_is_refused() -> None:
    made = Request(WithModel(), UpTo(), [10, 11], 1, 100, frozenset())
    with pytest.raises(UnsupportedOption, match="asked for a forward of a model, which it can't have inside vLLM"):
        made.draft(3)
