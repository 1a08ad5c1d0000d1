"""What a policy may leave out of a draft: the chosen step at which it ends, and never a drawn one."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

import pytest
import torch

from forerun.core.chance import Seeded
from forerun.core.decode import collect, decode
from forerun.core.drafter import Drafter
from forerun.core.drive import drive
from forerun.core.law import Categorical, Law
from forerun.core.policy import LengthPolicy
from forerun.core.values import Context, DraftCounts, Round, Step, UnusedWork
from forerun.drafters.none import NoDraft
from forerun.models.packed.runner import HFRunner
from forerun.models.packed.sequence import Sequence as TokenSequence
from forerun.policies.fixed import Fixed
from forerun.testing import tiny_model

PROMPT = [5, 6, 7, 8]
DRAWN = Categorical(torch.full((97,), 1 / 97))


class Told(Drafter):
    """Drafts these tokens, each with this law, at the cost of a forward."""

    def __init__(self, tokens: Sequence[int], law: Law | None = None) -> None:
        self.tokens = tokens
        self.law = law
        self.pulled = 0

    async def draft(self, context: Context) -> AsyncGenerator[Step]:
        self.unused = UnusedWork(DraftCounts(merged=1), 0.5)
        for node, token in enumerate(self.tokens):
            self.pulled += 1
            yield Step((token,), (node - 1,), (self.law,), forward_seconds=0.25, counts=DraftCounts(1))


class Leaves(LengthPolicy):
    """Leaves the step at this place out."""

    def __init__(self, place: int) -> None:
        self.place = place
        self.asked: list[int] = []
        self.seen: list[int] = []

    def should_stop(self, steps: Sequence[Step]) -> bool:
        return len(steps) == 4

    def leaves_out(self, steps: Sequence[Step]) -> bool:
        self.asked.append(len(steps))
        return len(steps) > self.place

    def observe(self, steps: Sequence[Step], round: Round) -> None:
        self.seen.append(len(steps))


def collected(drafter: Drafter, policy: LengthPolicy) -> tuple[list[Step], UnusedWork]:
    source = collect(drafter, policy, Context([*PROMPT], Seeded(0)))
    with pytest.raises(StopIteration) as ended:
        source.send(None)
    steps, unused = ended.value.value
    return steps, unused


@pytest.mark.parametrize("place", [0, 1, 3])
def test_the_draft_ends_before_a_step_that_is_left_out(place: int) -> None:
    drafter, policy = Told([1, 2, 3, 4, 5]), Leaves(place)
    steps, _ = collected(drafter, policy)
    assert [step.tokens[0] for step in steps] == [1, 2, 3, 4][:place]
    assert (drafter.pulled, policy.asked) == (place + 1, list(range(1, place + 2)))


def test_a_step_that_is_left_out_is_work_that_led_to_none() -> None:
    _, unused = collected(Told([1, 2, 3]), Leaves(1))
    assert unused == UnusedWork(DraftCounts(forwards=1, merged=1), 0.75)


def test_nobody_asks_about_a_drawn_step() -> None:
    policy = Leaves(0)
    steps, unused = collected(Told([1, 2, 3], DRAWN), policy)
    assert (len(steps), policy.asked, unused.seconds) == (3, [], 0.5)


def test_policies_leave_nothing_out_unless_they_say_so() -> None:
    steps, _ = collected(Told([1, 2, 3, 4]), Fixed(3))
    assert len(steps) == 3


@pytest.mark.parametrize("place", [0, 1])
def test_the_text_stays_and_the_rounds_hold_what_was_verified(place: int) -> None:
    runner = HFRunner(tiny_model("llama"))

    def text(drafter: Drafter, policy: LengthPolicy) -> tuple[list[int], list[Round]]:
        request = Context([*PROMPT], Seeded(0), max_new_tokens=8)
        rounds = list(drive(decode(TokenSequence(runner), drafter, policy, request)))
        return request.ids, rounds

    plain, _ = text(NoDraft(), Fixed(1))
    policy = Leaves(place)
    got, rounds = text(Told(plain[5:9]), policy)
    assert got == plain
    assert {len(round.draft) for round in rounds[1:]} <= {0, place}
    assert policy.seen == [len(round.draft) for round in rounds[1:]]
    assert not any(round.held_back for round in rounds)
    assert sum(round.draft.counts.forwards for round in rounds) > sum(len(round.draft) for round in rounds)
