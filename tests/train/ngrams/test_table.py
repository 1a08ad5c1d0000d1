"""What a table says of held-out answers, on answers whose law is known."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from statistics import mean

import pytest

from forerun.core.identity import Identity
from forerun.drafters.copying.ngram_votes import NgramVotes
from forerun.train.data.examples import Example
from forerun.train.ngrams.table import build_table

TARGET = Identity("llama", 4, 32, 97, "a" * 16, "b" * 16)


def answers(count: int = 400, seed: int = 0) -> list[Example]:
    """After 1 comes 2, always. After 3 comes 4 in seven of ten cases, else 5, and after 9, 3 always 6. After 7 anything."""
    chance, texts = Random(seed), []
    for _ in range(count):
        ids = [0]
        while len(ids) < 40:
            ids += chance.choice(
                [[1, 2], [3, 4] if chance.random() < 0.7 else [3, 5], [9, 3, 6], [7, chance.randrange(10, 90)]]
            )
        texts.append(Example(tuple(ids), 1))
    return texts


def asked(seed: int = 1) -> Iterator[tuple[tuple[int, ...], int]]:
    """Texts of new answers, and the token after each."""
    for one in answers(200, seed):
        yield from ((one.ids[:at], one.ids[at]) for at in range(4, len(one.ids)))


@pytest.fixture(scope="module")
def votes() -> NgramVotes:
    return NgramVotes(build_table(answers(), TARGET)[0])


def test_what_always_follows_is_said_and_nearly_certain(votes: NgramVotes) -> None:
    said = [votes.after(text) for text, _ in asked() if text[-1] == 1 or text[-2:] == (9, 3)]
    assert all(vote is not None and vote.token in (2, 6) for vote in said)
    assert mean(vote.share for vote in said if vote is not None) > 0.8


def test_tokens_are_right_as_often_as_the_table_says(votes: NgramVotes) -> None:
    said = [(vote, vote.token == token) for text, token in asked() if (vote := votes.after(text)) is not None]
    for low, high in ((0.2, 0.45), (0.45, 0.8), (0.8, 1.01)):
        within = [(vote.share, right) for vote, right in said if low <= vote.share < high]
        assert len(within) > 50
        # of the surest a class holds some that are surer than it
        assert -0.08 < mean(right for _, right in within) - mean(share for share, _ in within) < 0.2


def test_a_longer_context_says_what_a_shorter_one_does_not(votes: NgramVotes) -> None:
    vote = votes.after([2, 9, 3])
    assert vote is not None
    assert vote.token == 6
    assert vote.length >= 2
    assert votes.after([2, 3]) != vote


def test_the_table_is_as_right_on_other_answers_as_it_says() -> None:
    table, judged = build_table(answers(), TARGET)
    votes, right, count = NgramVotes(table), 0, 0
    for one in answers(100, seed=1):
        for at in range(one.start, len(one.ids)):
            vote = votes.after(one.ids[:at])
            count += 1
            right += vote is not None and vote.token == one.ids[at]
    assert right / count == pytest.approx(judged.right, abs=0.03)
    assert table.right == judged.right
    assert judged.right_of_sure > judged.right
    assert 0 < judged.sure < 1


def test_contexts_that_only_repeat_shorter_ones_are_left_out() -> None:
    """1 says 2 whatever stands before it."""
    texts = [Example((number, 1, 2, last), 1) for number in range(5, 20) for last in range(30, 70)]
    votes = NgramVotes(build_table(texts, TARGET, longest=2)[0])
    vote = votes.after([7, 1])
    assert vote is not None
    assert (vote.token, vote.length) == (2, 1)


def test_it_says_what_it_was_made_of() -> None:
    table, judged = build_table(answers(50), TARGET, model="tiny")
    assert (table.trained["model"], table.trained["answers"]) == ("tiny", 50)
    assert table.trained["tokens"] == sum(len(one.ids) - one.start for one in answers(50))
    assert judged.tokens < table.trained["tokens"] / 5
    assert table.target == TARGET


@pytest.mark.parametrize("longest", [0, 9])
def test_contexts_of_other_lengths_are_refused(longest: int) -> None:
    with pytest.raises(ValueError, match=f"the longest context must be of 1..8 tokens, got {longest}"):
        build_table(answers(10), TARGET, longest)


@pytest.mark.parametrize("held_out", [0.0, 1.0])
def test_some_answers_are_held_out_and_not_all(held_out: float) -> None:
    with pytest.raises(ValueError, match="held-out part must be above 0 and below 1"):
        build_table(answers(10), TARGET, held_out=held_out)


def test_answers_that_have_nothing_in_common_make_no_table() -> None:
    texts = [Example(tuple(range(start, start + 12)), 1) for start in range(0, 84, 12)]
    with pytest.raises(ValueError, match="give more of them"):
        build_table(texts, TARGET, held_out=0.5)
