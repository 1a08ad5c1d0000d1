"""The paper's stochastic rule: what passes, what is kept, and what is greedy all the same."""

from __future__ import annotations

from typing import Any, final

import pytest
import torch

from forerun import load
from forerun.core.chance import Chance, Seeded
from forerun.core.law import Categorical, Law, PointMass
from forerun.core.values import ROOT, Draft, Verdict
from forerun.drafters.branching.graph_lossy import stochastic
from forerun.testing import tiny_model

P, Q = Categorical(torch.tensor([0.5, 0.5, 0.0])), Categorical(torch.tensor([0.25, 0.25, 0.5]))


@final
class Always(Chance):
    """The same number for everything; what was asked is noted."""

    def __init__(self, number: float) -> None:
        self._number = number
        self.asked: list[tuple[bytes, tuple[int, ...]]] = []

    def uniform(self, purpose: bytes, *key: int) -> float:
        self.asked.append((purpose, key))
        return self._number


def judged(draft: Draft, number: float = 0.9, law: Law = P) -> Verdict:
    return stochastic(draft, lambda row, drafted: law, Always(number), 7)


def test_the_longest_path_that_passes_is_kept() -> None:
    draft = Draft((0, 1, 0, 2), (ROOT, ROOT, 1, 2), (Q,) * 4)
    assert judged(draft) == Verdict((1, 2), (1, 0, 1))


def test_of_two_paths_of_one_length_the_first_is_kept() -> None:
    assert judged(Draft((0, 1), (ROOT, ROOT), (Q, Q))).path == (0,)


def test_a_child_passes_below_the_ratio_of_target_to_draft() -> None:
    half = Draft((1,), (ROOT,), (Categorical(torch.tensor([0.0, 1.0, 0.0])),))
    assert judged(half, 0.49).path == (0,)
    assert judged(half, 0.5).path == ()


def test_every_child_has_a_coin_of_its_own_at_its_position() -> None:
    chance = Always(0.9)
    stochastic(Draft((0, 1, 0), (ROOT, ROOT, 0), (Q,) * 3), lambda row, drafted: P, chance, 7)
    assert sorted(chance.asked) == [(b"accept", (7, 0)), (b"accept", (7, 1)), (b"accept", (8, 2)), (b"token", (9,))]


def test_an_empty_draft_gives_the_targets_token() -> None:
    assert stochastic(Draft(), lambda row, drafted: PointMass(7), Seeded(0), 3) == Verdict((), (7,))


def test_chosen_tokens_of_a_greedy_target_are_followed_as_by_the_exact_rule() -> None:
    draft = Draft((4, 5, 6, 8), (ROOT, ROOT, 0, 1), (None,) * 4)
    best = {0: 5, 2: 8, 4: 1}
    assert stochastic(draft, lambda row, drafted: PointMass(best[row]), Seeded(0), 3) == Verdict((1, 3), (5, 8, 1))


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny_model("llama")


def test_an_engine_tells_that_it_is_lossy(model: Any) -> None:
    options = {"of": "self", "exit_layer": 3, "min_confidence": 0.0, "sibling": 0.0}
    plain = load(model)
    lossy = plain.using("graph", drafter_options={**options, "verification": "stochastic-lossy"})
    exact = plain.using("graph", drafter_options=options)
    assert (plain.lossy, exact.lossy, lossy.lossy) == (False, False, True)
    prompt = [5, 6, 7, 8]
    assert lossy.generate(prompt, max_new_tokens=20).ids == plain.generate(prompt, max_new_tokens=20).ids
    sampled = {"temperature": 1.0, "max_new_tokens": 30, "seed": 1}
    assert exact.generate(prompt, **sampled).ids == plain.generate(prompt, **sampled).ids
    assert lossy.generate(prompt, **sampled).ids != plain.generate(prompt, **sampled).ids
