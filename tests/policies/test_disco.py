from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from forerun import load
from forerun.core.identity import Identity, Pair
from forerun.core.values import Signals, Step
from forerun.models.files.classifier_heads import LOOKAHEAD, ClassifierHeadFile, write_classifier_head
from forerun.policies.disco import build
from forerun.testing import save_tiny_classifier, tiny_model

PAIR = Pair(Identity("llama", 4, 32, 97, "0" * 16), "self up to layer 2")


@pytest.fixture
def classifier(tmp_path: Path) -> str:
    """Says the logistic function of 10 x (the largest probability - 0.1 x place - 0.4); tau 0.5. Reads two probabilities."""
    weights = {
        "mean": torch.zeros(4),
        "deviation": torch.ones(4),
        "in.weight": torch.tensor([[10.0, 0.0, 0.0, -1.0]]),
        "in.bias": torch.tensor([100.0]),
        "out.weight": torch.ones(1, 1),
        "out.bias": torch.tensor([-104.0]),
    }
    write_classifier_head(LOOKAHEAD, ClassifierHeadFile(PAIR, weights, 0.5), tmp_path / "classifier")
    return str(tmp_path / "classifier")


def step(best: float) -> Step:
    return Step((0,), (-1,), (None,), signals=Signals(best, best, 0.3, (best, (1 - best) / 2)))


def test_it_drafts_on_while_the_classifier_is_sure_enough(classifier: str) -> None:
    policy = build(classifier=classifier)()
    assert not policy.should_stop([])
    assert not policy.should_stop([step(0.6)])
    assert policy.should_stop([step(0.4)])


def test_the_place_in_the_draft_counts(classifier: str) -> None:
    policy = build(classifier=classifier)()
    assert not policy.should_stop([step(0.55)])
    assert policy.should_stop([step(0.9), step(0.55)])


def test_only_the_last_step_counts(classifier: str) -> None:
    assert not build(classifier=classifier)().should_stop([step(0.1), step(0.9)])


def test_the_training_chose_tau_unless_it_is_given(classifier: str) -> None:
    # at 0.7 in the first place: 1 / (1 + exp(-2)) = 0.88
    assert not build(classifier=classifier, tau=0.87)().should_stop([step(0.7)])
    assert build(classifier=classifier, tau=0.89)().should_stop([step(0.7)])


def test_rows_are_read_as_signals_are(classifier: str) -> None:
    policy = build(classifier=classifier)()
    for best, stop in ((0.6, False), (0.4, True)):
        row = torch.tensor([[best, *[(1 - best) / 4] * 4]]).log()
        assert policy.should_stop([Step((0,), (-1,), (None,), row)]) == stop


def test_at_most_so_many_steps_whatever_it_says(classifier: str) -> None:
    policy = build(classifier=classifier, max_steps=2)()
    assert [policy.should_stop([step(0.99)] * count) for count in range(4)] == [False, False, True, True]


def test_steps_without_a_law_go_on_to_the_last(classifier: str) -> None:
    copied = Step((0,), (-1,), (None,))
    policy = build(classifier=classifier, max_steps=3)()
    assert [policy.should_stop([copied] * count) for count in range(4)] == [False, False, False, True]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tau": -0.1}, r"tau must be in \[0, 1\], got -0.1"),
        ({"tau": float("nan")}, r"tau must be in \[0, 1\], got nan"),
        ({"max_steps": 0}, "max_steps must be at least 1, got 0"),
    ],
)
def test_bounds_that_mean_nothing_are_refused(classifier: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(classifier=classifier, **options)


def test_a_classifier_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no lookahead classifier at .*nowhere: there is no classifier\.json"):
        build(classifier=str(tmp_path / "nowhere"))


def test_a_classifier_goes_with_its_pair_only(tmp_path: Path) -> None:
    built = load(tiny_model("llama"), drafter="self", drafter_options={"exit_layer": 2})
    options = {"classifier": str(save_tiny_classifier(tmp_path / "c", built.pair))}

    own = built.using("self", "disco", drafter_options={"exit_layer": 2}, policy_options=options)
    assert own.generate([5, 6, 7], max_new_tokens=20).stats.drafted > 0
    with pytest.raises(ValueError, match="trained for another drafter"):
        built.using("self", "disco", drafter_options={"exit_layer": 1}, policy_options=options)
