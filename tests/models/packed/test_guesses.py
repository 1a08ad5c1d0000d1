"""Guesses that one forward checks: the rows up to the first wrong one, and what is left of the others."""

from __future__ import annotations

import pytest
import torch

from forerun.core.forward import Rows
from forerun.core.values import ROOT
from forerun.models.packed.guesses import through_guesses
from forerun.models.packed.plan import LayerPlan
from forerun.models.packed.request import Chain
from forerun.models.packed.runner import HFRunner
from forerun.models.packed.sequence import Sequence
from forerun.testing import VOCABULARY

from ..running import finish, off, own_logits, text

BEST = [4, 7, 2, 9]


def rows(best: list[int], before: int = 0) -> Rows:
    """Rows whose best tokens these are, after so many rows that have states only."""
    logits = torch.zeros(len(best), 12)
    logits[range(len(best)), best] = 1.0
    states = torch.arange(2.0 * (before + len(best))).view(-1, 2)
    return Rows(logits, logits[:, :3] + 0, {5: states}, best=best)


def greedy(model: object, ids: list[int], number: int) -> list[int]:
    ids = list(ids)
    for _ in range(number):
        ids.append(int(own_logits(model, ids)[-1].argmax()))
    return ids[-number:]


@pytest.mark.parametrize(
    ("guesses", "tokens"),
    [
        ([4, 7, 2], [4, 7, 2, 9]),
        ([4, 7, 3], [4, 7, 2]),
        ([4, 1, 2], [4, 7]),
        ([1, 7, 2], [4]),
    ],
)
def test_rows_go_through_right_guesses_and_end_with_the_first_wrong_one(guesses: list[int], tokens: list[int]) -> None:
    found = through_guesses(rows(BEST, before=2), guesses, among=12)
    assert list(found.tokens) == tokens
    assert found.checked
    assert len(found.logits) == len(found.hidden) == len(tokens)
    assert len(found.taps[5]) == 2 + len(tokens)
    assert list(found.best) == []
    assert torch.equal(found.logits, rows(BEST).logits[: len(tokens)])


def test_tokens_are_the_best_of_those_that_both_models_have() -> None:
    given = rows(BEST)
    given.given_logits[1, 3] = 0.5  # type: ignore[index]
    assert list(through_guesses(given, [4, 3, 2], among=5).tokens) == [4, 3, 2, 0]


def test_a_row_that_is_no_law_leaves_the_first_row_whose_token_is_yet_to_be_chosen() -> None:
    given = rows(BEST)
    given.given_logits[2] = torch.nan  # type: ignore[index]
    found = through_guesses(given, [4, 7, 2], among=12)
    assert list(found.tokens) == []
    assert len(found.logits) == len(found.taps[5]) - 0 == 1


@pytest.fixture
def sequence(runner: HFRunner) -> Sequence:
    sequence = Sequence(runner)
    finish(sequence.sync(text(10)))
    return sequence


@pytest.mark.parametrize("right", [0, 1, 2, 3])
def test_right_guesses_are_scratch_rows_and_wrong_ones_leave_nothing(sequence: Sequence, model, right: int) -> None:
    best = greedy(model, [*text(10), 3], 4)
    guesses = [token if i < right else (token + 1) % VOCABULARY for i, token in enumerate(best[:3])]
    found = finish(sequence.forward([3], chain=Chain(4, VOCABULARY, tuple(guesses))))
    assert list(found.tokens) == best[: right + 1]
    assert sequence.scratch == (3, *best[:right])
    # what comes next reads the rows that are left
    found = finish(sequence.forward([8]))
    assert off(found.logits, own_logits(model, [*text(10), 3, *best[:right], 8])[-1:]) < 1e-4


@pytest.mark.parametrize("known", [0, 4, 9])
def test_a_text_is_read_and_its_guesses_are_checked_in_one_forward(runner: HFRunner, model, known: int) -> None:
    sequence = Sequence(runner)
    if known:
        finish(sequence.sync(text(known)))
    best = greedy(model, text(10), 3)
    found = finish(sequence.sync(text(10), chain=Chain(4, VOCABULARY, (best[0], best[1], (best[2] + 1) % VOCABULARY))))
    assert list(found.tokens) == best
    assert sequence.ids == text(10)
    assert sequence.scratch == tuple(best[:2])
    rows = finish(sequence.complete([*best[:2], 5], [ROOT, 0, 1]))
    sequence.keep([0, 1, 2])
    assert off(rows.logits, own_logits(model, [*text(10), *best[:2], 5])[-3:]) < 1e-4
    assert off(finish(sequence.sync([*sequence.ids, 4])).logits, own_logits(model, [*sequence.ids[:-1], 4])[-1:]) < 1e-4


def test_states_are_known_of_right_guesses_alone(sequence: Sequence, model) -> None:
    taps = frozenset({2})
    finish(sequence.sync(text(10), taps))
    best = greedy(model, [*text(10), 3], 3)
    finish(sequence.forward([3], taps=taps, chain=Chain(3, VOCABULARY, (best[0], (best[1] + 1) % VOCABULARY))))
    sequence.keep([0, 1])
    other = Sequence(sequence.runner)
    finish(other.sync([*text(10), 3, best[0]], taps))
    assert off(sequence.states(2), other.states(2)) < 1e-4


def test_an_early_exit_checks_guesses_and_its_rows_are_completed_from_there(sequence: Sequence, model) -> None:
    plan = LayerPlan.early_exit(2, 4)
    first = finish(sequence.forward([3], plan=plan))
    token = int(first.logits[-1].argmax())
    sequence.drop()
    found = finish(sequence.forward([3], plan=plan, chain=Chain(3, VOCABULARY, (token, token))))
    assert found.tokens[0] == token
    rows = finish(sequence.complete([3, token], [ROOT, 0]))
    assert off(rows.logits, own_logits(model, [*text(10), 3, token])[-2:]) < 1e-4


def test_guesses_end_where_the_context_does(model) -> None:
    runner = HFRunner(model)
    runner.max_length = 12
    sequence = Sequence(runner)
    best = greedy(model, text(10), 3)
    found = finish(sequence.sync(text(10), chain=Chain(9, VOCABULARY, (*best, 1, 2))))
    assert list(found.tokens) == best
    assert sequence.scratch == tuple(best[:2])
