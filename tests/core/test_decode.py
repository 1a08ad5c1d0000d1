"""The loop: what a round holds, where it stops, what a policy and a drafter may do."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from functools import cache

import pytest
import torch
from torch import Tensor

from forerun.core.chance import Seeded
from forerun.core.constraint import Constraint
from forerun.core.decode import decode
from forerun.core.drafter import Drafter
from forerun.core.drive import drive
from forerun.core.policy import LengthPolicy
from forerun.core.values import ROOT, Context, Round, Sampling, Step
from forerun.drafters.none import NoDraft
from forerun.errors import InvalidLogits
from forerun.models.packed.runner import HFRunner
from forerun.models.packed.sequence import Sequence as TokenSequence
from forerun.policies.fixed import Fixed
from forerun.testing import tiny_model

PROMPT = (5, 6, 7, 8)


class Scripted(Drafter):
    """Proposes a chain, or a tree, that the test wrote down; notes how often it was pulled and closed."""

    def __init__(self, tokens: Sequence[int], parents: Sequence[int] | None = None) -> None:
        self.tokens = tokens
        self.parents = range(ROOT, len(tokens) - 1) if parents is None else parents
        self.pulled = 0
        self.closed = 0
        self.learnt: list[tuple[Round, Tensor]] = []

    async def draft(self, context: Context) -> AsyncGenerator[Step]:
        try:
            for token, parent in zip(self.tokens, self.parents, strict=True):
                self.pulled += 1
                yield Step((token,), (parent,), (None,))
        finally:
            self.closed += 1

    def learn(self, round: Round, rows: Tensor) -> None:
        self.learnt.append((round, rows.clone()))


class Counting(Constraint):
    """After an even token come the next three numbers, as far as `last`; after an odd one, any even one."""

    def __init__(self, first: int, last: int = 95) -> None:
        self.text: tuple[int, ...] = (first,)
        self.last = last

    def allowed(self, drafted: tuple[int, ...]) -> Tensor | None:
        mask = torch.zeros(97, dtype=torch.bool)
        mask[list(self._after(drafted))] = True
        return mask if mask.any() else None

    def permits(self, drafted: tuple[int, ...], token: int) -> bool:
        return token in self._after(drafted)

    def completes(self, drafted: tuple[int, ...]) -> bool:
        return not self._after(drafted)

    def forced(self, room: int) -> tuple[int, ...]:
        tokens: tuple[int, ...] = ()
        while len(tokens) < room and len(after := self._after(tokens)) == 1:
            tokens = (*tokens, *after)
        return tokens

    def emit(self, tokens: Sequence[int]) -> None:
        self.text = (*self.text, *tokens)
        self.complete = self.completes(())

    def _after(self, drafted: tuple[int, ...]) -> range:
        text = (*self.text, *drafted)
        last = text[-1]
        if last >= self.last:
            return range(0)
        in_a_row = next((n for n in range(1, len(text)) if text[-n] != text[-n - 1] + 1), len(text))
        return range(0, 97, 2) if in_a_row > 3 and last % 2 else range(last + 1, last + 2)


class Recorder(LengthPolicy):
    def __init__(self, stop_at: int) -> None:
        self.stop_at = stop_at
        self.asked: list[int] = []
        self.seen: list[tuple[int, Round]] = []

    def should_stop(self, steps: Sequence[Step]) -> bool:
        self.asked.append(len(steps))
        return len(steps) >= self.stop_at

    def observe(self, steps: Sequence[Step], round: Round) -> None:
        self.seen.append((len(steps), round))


@cache
def runner() -> HFRunner:
    return HFRunner(tiny_model("llama"))


def context(**options: object) -> Context:
    given = {"ids": list(PROMPT), "chance": Seeded(0), "max_new_tokens": 6, **options}
    return Context(**given)  # type: ignore[arg-type]


def rounds(request: Context, drafter: Drafter | None = None, policy: LengthPolicy | None = None) -> list[Round]:
    source = decode(TokenSequence(runner()), drafter or NoDraft(), policy or Fixed(3), request)
    return list(drive(source))


@cache
def plain(count: int = 6) -> tuple[int, ...]:
    request = context(max_new_tokens=count)
    rounds(request)
    return tuple(request.ids[len(PROMPT) :])


def test_the_first_round_is_the_prefill_and_each_later_one_a_forward() -> None:
    got = rounds(context())
    assert [round.prefill for round in got] == [True] + [False] * 5
    assert [round.start for round in got] == [4, 5, 6, 7, 8, 9]
    assert all(len(round.tokens) == 1 and len(round.draft) == 0 for round in got)


def test_a_right_draft_is_emitted_with_one_token_more() -> None:
    got = rounds(context(), Scripted(plain()[1:4]))
    assert got[1].verdict.path == (0, 1, 2)
    assert got[1].tokens == plain()[1:5]


def test_a_wrong_draft_costs_nothing_but_time() -> None:
    wrong = [(token + 1) % 97 for token in plain()]
    request = context()
    got = rounds(request, Scripted(wrong[1:3]))
    assert got[1].verdict.path == ()
    assert tuple(request.ids[4:]) == plain()


def test_a_tree_is_walked_to_the_accepted_leaf() -> None:
    first, second = plain()[1], plain()[2]
    drafter = Scripted([(first + 1) % 97, first, second, second], [ROOT, ROOT, 0, 1])
    got = rounds(context(), drafter, Fixed(9))
    assert got[1].verdict.path == (1, 3)
    assert got[1].tokens == plain()[1:4]


def test_a_draft_leaves_room_for_the_targets_own_token() -> None:
    drafter = Scripted(plain()[1:])
    request = context(max_new_tokens=3)
    got = rounds(request, drafter, Fixed(9))
    assert len(got[1].draft) == 1
    assert tuple(request.ids[4:]) == plain()[:3]


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_exactly_max_new_tokens_are_emitted(count: int) -> None:
    request = context(max_new_tokens=count)
    rounds(request, Scripted(plain()[1:3]))
    assert tuple(request.ids[4:]) == plain()[:count]
    assert request.finish_reason == "length"


def test_the_context_limit_ends_a_request() -> None:
    request = context(max_length=7)
    rounds(request, Scripted(plain()[1:4]))
    assert len(request.ids) == 7


@pytest.mark.parametrize("where", [0, 1, 2, 3, 4])
def test_an_end_of_sequence_anywhere_in_a_block_ends_the_text_there(where: int) -> None:
    end = plain()[where]
    first = plain().index(end)
    request = context(eos=frozenset({end}))
    got = rounds(request, Scripted(plain()[1:4]), Fixed(3))
    assert tuple(request.ids[4:]) == plain()[: first + 1]
    assert request.finish_reason == "stop"
    assert sum(len(round.tokens) for round in got) == first + 1


def test_the_earliest_of_several_end_tokens_counts() -> None:
    request = context(eos=frozenset({plain()[3], plain()[1]}))
    rounds(request, Scripted(plain()[1:4]))
    assert tuple(request.ids[4:]) == plain()[: min(plain().index(plain()[3]), plain().index(plain()[1])) + 1]


def test_a_drafted_end_of_sequence_ends_the_draft_but_not_the_text() -> None:
    end = next(token for token in range(97) if token not in plain())
    drafter = Scripted([end, 1, 2])
    request = context(eos=frozenset({end}))
    got = rounds(request, drafter)
    assert len(got[1].draft) == 1
    assert tuple(request.ids[4:]) == plain()


def test_the_policy_is_asked_before_the_first_pull_and_after_every_step() -> None:
    policy = Recorder(stop_at=2)
    rounds(context(max_new_tokens=2 + 4), Scripted([96, 95, 94]), policy)
    assert policy.asked[:3] == [0, 1, 2]


def test_a_policy_may_draft_nothing() -> None:
    drafter = Scripted(plain()[1:4])
    got = rounds(context(), drafter, Recorder(stop_at=0))
    assert drafter.pulled == 0
    assert all(len(round.draft) == 0 for round in got)


def test_the_policy_observes_every_round_but_the_prefill() -> None:
    policy = Recorder(stop_at=2)
    got = rounds(context(), Scripted(plain()[1:4]), policy)
    assert [round for _, round in policy.seen] == got[1:]
    assert [count for count, _ in policy.seen] == [len(round.draft) for round in got[1:]]


def test_the_drafter_is_closed_each_round() -> None:
    drafter = Scripted([96, 95, 94])
    got = rounds(context(), drafter, Fixed(1))
    # the last round has no room for a draft: the source is made and closed unread
    assert drafter.closed == sum(len(round.draft) > 0 for round in got)


def test_the_drafter_learns_from_the_rows_of_every_finished_round_also_of_rejected_tokens() -> None:
    drafter = Scripted([*plain()[1:3], 0])
    got = rounds(context(), drafter)
    assert [round for round, _ in drafter.learnt] == got
    assert [len(rows) for _, rows in drafter.learnt] == [1, *(len(round.draft) + 1 for round in got[1:])]
    for round, rows in drafter.learnt:
        best = rows.argmax(-1).tolist()
        assert [best[row] for row in (0, *(node + 1 for node in round.verdict.path))] == list(round.verdict.tokens)


def test_raw_logits_come_only_when_asked_for() -> None:
    assert all(round.logits is None for round in rounds(context()))
    got = rounds(context(keep_logits=True), Scripted(plain()[1:4]))
    for round in got:
        assert round.logits is not None
        assert round.logits.argmax(-1).tolist() == list(round.tokens)


def test_times_are_measured() -> None:
    for round in rounds(context(), Scripted(plain()[1:4])):
        assert round.timing.forward > 0
        assert 0 < round.timing.law <= round.timing.decide or round.prefill
        assert round.timing.verify >= round.timing.forward + round.timing.keep


def test_a_row_with_nan_is_an_error_that_says_so() -> None:
    model = tiny_model("llama", seed=3)
    model.lm_head.weight.data[5] = float("nan")
    source = decode(TokenSequence(HFRunner(model)), NoDraft(), Fixed(1), context())
    with pytest.raises(InvalidLogits, match="NaN"):
        list(drive(source))


def test_sampling_reaches_every_row_with_its_own_prefix() -> None:
    sampling = Sampling(temperature=0.9, repetition_penalty=1.5, no_repeat_ngram=2)
    one = context(sampling=sampling, max_new_tokens=20)
    rounds(one)
    other = context(sampling=sampling, max_new_tokens=20)
    got = rounds(other, Scripted(one.ids[5:8]), Fixed(3))
    assert other.ids == one.ids
    assert got[1].verdict.path == (0, 1, 2)


def test_forced_tokens_are_the_draft_and_neither_policy_nor_drafter_is_asked() -> None:
    policy, drafter = Recorder(2), Scripted([1, 2])
    request = context(constraint=Counting(10), max_new_tokens=5)
    got = rounds(request, drafter, policy)
    assert request.ids[4:7] == [11, 12, 13]
    first = got[1]
    assert first.forced
    assert not first.held_back
    assert first.draft.tokens == first.tokens[: len(first.draft)] == (12, 13)
    asked = [round for round in got[1:] if not round.forced]
    assert len(policy.seen) == len(asked) < len(got) - 1
    assert [round for round, _ in drafter.learnt] == got


def test_forced_tokens_are_not_drafted_where_that_is_turned_off_and_the_text_is_the_same() -> None:
    drafted, plainly = (
        context(constraint=Counting(10), max_new_tokens=20),
        context(constraint=Counting(10), max_new_tokens=20),
    )
    assert any(round.forced for round in rounds(drafted))
    source = decode(TokenSequence(runner()), NoDraft(), Fixed(3), plainly, forced=False)
    assert not any(len(round.draft) for round in drive(source))
    assert plainly.ids == drafted.ids


@pytest.mark.parametrize("new", [1, 2, 3])
def test_forced_tokens_leave_room_for_the_targets_own(new: int) -> None:
    request = context(constraint=Counting(10), max_new_tokens=new)
    got = rounds(request)
    assert request.ids[4:] == [11, 12, 13][:new]
    assert sum(len(round.draft) for round in got) == max(new - 2, 0)


def test_the_text_ends_where_the_constraint_lets_nothing_follow() -> None:
    request = context(constraint=Counting(10, last=13), max_new_tokens=50)
    rounds(request)
    assert request.ids[4:] == [11, 12, 13]
    assert request.finish_reason == "stop"


def test_raw_logits_that_are_asked_for_leave_out_what_is_forbidden() -> None:
    request = context(constraint=Counting(10), max_new_tokens=3, keep_logits=True)
    for round in rounds(request):
        assert round.logits is not None
        assert len(round.logits) == len(round.tokens)
        for row, token in zip(round.logits, round.tokens, strict=True):
            assert (row > -torch.inf).nonzero()[:, 0].tolist() == [token]
