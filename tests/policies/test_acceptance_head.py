from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from forerun import load
from forerun.core.identity import Identity, Pair
from forerun.core.values import Step
from forerun.models.files.classifier_heads import ACCEPTANCE, ClassifierHeadFile, write_classifier_head
from forerun.policies.acceptance_head import build
from forerun.policies.bounded import Bounded
from forerun.testing import save_tiny_head, tiny_model

from .rounds import round_of

PAIR = Pair(Identity("llama", 4, 32, 97, "0" * 16), "self up to layer 2")


@pytest.fixture
def head(tmp_path: Path) -> str:
    """A linear probe that says the logistic function of the state's one number; threshold 0.4, calibrated from weight 1."""
    weights = {"scale": torch.ones(1), "out.weight": torch.tensor([[0.0], [1.0]]), "out.bias": torch.zeros(2)}
    write_classifier_head(ACCEPTANCE, ClassifierHeadFile(PAIR, weights, 0.4), tmp_path / "head")
    return str(tmp_path / "head")


def step(accepted: float | None) -> Step:
    """A step whose row read a token that is accepted so often."""
    hidden = None if accepted is None else torch.logit(torch.tensor([[accepted]]))
    return Step((0,), (-1,), (None,), hidden=hidden)


def stops(policy: Any, accepted: Sequence[float | None]) -> list[bool]:
    """Asked before and after each step of a draft."""
    steps: list[Step] = []
    asked = [policy.should_stop(steps)]
    for one in accepted:
        steps.append(step(one))
        asked.append(policy.should_stop(steps))
    return asked


def test_it_stops_when_a_rejection_is_likelier_than_h(head: str) -> None:
    # after the third and the fourth: 1 - 0.9 x 0.8 = 0.28, 1 - 0.9 x 0.8 x 0.7 = 0.496
    assert stops(build(head=head)(), [0.1, 0.9, 0.8, 0.7]) == [False, False, False, False, True]
    assert stops(build(head=head, h=0.2)(), [0.1, 0.9, 0.8]) == [False, False, False, True]
    assert stops(build(head=head, h=0.5)(), [0.1, 0.9, 0.8, 0.7]) == [False] * 5


def test_the_first_row_read_a_verified_token_and_says_nothing(head: str) -> None:
    assert stops(build(head=head, min_steps=0)(), [0.001, 0.9]) == [False] * 3


def test_the_last_token_is_not_scored_yet(head: str) -> None:
    """One step's lag: the second step's row tells of the first token, so a bad second token is seen at the third step."""
    assert stops(build(head=head)(), [0.9, 0.9, 0.1]) == [False, False, False, True]


def test_at_least_and_at_most_so_many_steps(head: str) -> None:
    assert stops(build(head=head, min_steps=3)(), [0.1, 0.1, 0.1]) == [False, False, False, True]
    assert stops(build(head=head, max_steps=2)(), [0.9, 0.9]) == [False, False, True]
    assert stops(build(head=head, min_steps=0, max_steps=1)(), [0.9]) == [False, True]


def test_a_round_begins_anew(head: str) -> None:
    policy = build(head=head)()
    assert stops(policy, [0.5, 0.1])[-1]
    policy.observe([step(0.5)], round_of([step(0.5)], 0))
    assert stops(policy, [0.5, 0.9, 0.9]) == [False] * 4


def test_asking_again_changes_nothing(head: str) -> None:
    policy = build(head=head)()
    steps = [step(0.5), step(0.7)]
    assert [policy.should_stop(steps) for _ in range(5)] == [False] * 5


def test_steps_without_states_are_not_judged(head: str) -> None:
    assert stops(build(head=head, max_steps=4)(), [None] * 4) == [False] * 4 + [True]
    assert stops(build(head=head)(), [None, 0.3]) == [False, False, True]


def test_calibration_can_be_left_out(tmp_path: Path) -> None:
    weights = {"scale": torch.ones(1), "out.weight": torch.tensor([[0.0], [1.0]]), "out.bias": torch.zeros(2)}
    write_classifier_head(ACCEPTANCE, ClassifierHeadFile(PAIR, weights, 0.4, reject_weight=6.0), tmp_path / "head")
    given = {"head": str(tmp_path / "head")}

    assert not stops(build(**given)(), [0.5, 0.5])[-1]  # 6 x 0.5 / (1 + 5 x 0.5) = 0.857
    assert stops(build(**given, calibrate=False)(), [0.5, 0.5])[-1]


def test_the_training_chose_h_unless_it_is_given(head: str) -> None:
    assert stops(build(head=head)(), [0.9, 0.59])[-1]
    assert not stops(build(head=head)(), [0.9, 0.61])[-1]
    assert stops(build(head=head, h=0.0)(), [0.9, 0.99])[-1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"h": 1.5}, r"h must be in \[0, 1\], got 1.5"),
        ({"h": float("nan")}, r"h must be in \[0, 1\], got nan"),
        ({"min_steps": 3, "max_steps": 2}, "bounds must be 0 <= min_steps <= max_steps .* got 3 and 2"),
        ({"min_steps": 0, "max_steps": 0}, "bounds must be"),
    ],
)
def test_bounds_that_mean_nothing_are_refused(head: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(head=head, **options)


def test_a_head_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no acceptance head at .*nowhere: there is no head\.json"):
        build(head=str(tmp_path / "nowhere"))


def test_a_head_goes_with_its_target_and_its_drafter_only(tmp_path: Path) -> None:
    model = tiny_model("llama")
    own = load(model, drafter="self", drafter_options={"exit_layer": 2})
    options = {"head": str(save_tiny_head(tmp_path / "head", own.pair, 32))}

    drafted = own.using("self", "acceptance_head", drafter_options={"exit_layer": 2}, policy_options=options)
    assert drafted.generate([5, 6, 7], max_new_tokens=20).stats.drafted > 0
    with pytest.raises(ValueError, match="another drafter: self up to layer 2 there, self up to layer 3 here"):
        own.using("self", "acceptance_head", drafter_options={"exit_layer": 3}, policy_options=options)
    with pytest.raises(ValueError, match="another target: its weights is"):
        load(
            tiny_model("llama", seed=1),
            drafter="self",
            drafter_options={"exit_layer": 2},
            policy="acceptance_head",
            policy_options=options,
        )
    inside = {"inner": "acceptance_head", **options, "max_steps": 4}
    with pytest.raises(ValueError, match="another drafter"):
        own.using("lookup", "bounded", policy_options=inside)


def test_a_head_of_another_hidden_size_is_refused_at_its_first_row(tmp_path: Path) -> None:
    built = load(tiny_model("llama"), drafter="self", drafter_options={"exit_layer": 2})
    options = {"head": str(save_tiny_head(tmp_path / "head", built.pair, 16))}
    odd = built.using("self", "acceptance_head", drafter_options={"exit_layer": 2}, policy_options=options)

    with pytest.raises(ValueError, match="reads hidden states of 16 numbers and the drafter's have 32; train one"):
        odd.generate([5, 6, 7], max_new_tokens=20)


def test_a_bound_keeps_what_the_inner_rule_was_trained_for(head: str) -> None:
    assert Bounded(build(head=head)(), 1, 3).trained_for == PAIR
