from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch

from forerun.models.files.classifier_heads import depth_of
from forerun.train.heads.acceptance import cross_entropy, fit, joined, predicted, weighted_loss
from forerun.train.heads.acceptance_data import Drafted
from forerun.train.heads.recipes import HeadRecipe

QUICK = HeadRecipe(depth=1, epochs=12, rows=64, learning_rate=3e-3)


def tokens(count: int, seed: int, width: int = 8) -> Drafted:
    """States whose first number decides how likely the token is accepted: 0.95 or 0.4."""
    hidden = 20 * torch.randn(count, width, generator=torch.Generator().manual_seed(seed))
    return Drafted(hidden, torch.where(hidden[:, 0] > 0, 0.95, 0.4))


def test_the_loss_weighs_rejections() -> None:
    logits = torch.tensor([[0.3, 1.1], [-0.2, 0.5]])
    labels = torch.tensor([0.9, 0.2])
    logs = logits.log_softmax(-1)
    upper = sum(-(6 * (1 - a) * row[0] + a * row[1]) for a, row in zip(labels, logs, strict=True))
    lower = sum(6 * (1 - a) + a for a in labels)

    torch.testing.assert_close(weighted_loss(logits, labels, 6.0), upper / lower)


def test_cross_entropy_is_least_at_the_labels() -> None:
    labels = torch.tensor([0.9, 0.2, 1.0, 0.0])
    own = cross_entropy(labels, labels)

    assert own == pytest.approx(
        -(0.9 * 0.10536 * -1 + 0.1 * -2.302585 + 0.2 * -1.609438 + 0.8 * -0.223144) / 4, abs=1e-4
    )
    assert cross_entropy(torch.full((4,), 0.5), labels) == pytest.approx(0.693147, abs=1e-5)
    assert cross_entropy(labels + torch.tensor([0.01, 0.02, 0.0, 0.0]), labels) > own


def test_what_can_be_told_is_learnt_and_calibrated() -> None:
    held = tokens(400, 1)
    fitted = fit(tokens(1500, 0), held, QUICK)
    says = predicted(fitted.weights, held.hidden, QUICK.reject_weight)

    assert fitted.cross_entropy < 0.9 * fitted.constant
    assert fitted.divergence == pytest.approx(fitted.cross_entropy - cross_entropy(held.accepted, held.accepted))
    sure = held.hidden[:, 0].abs() > 10
    for label in (0.95, 0.4):
        assert float(says[sure & (held.accepted == label)].mean()) == pytest.approx(label, abs=0.06)


@pytest.mark.parametrize("weight", [1.0, 12.0])
def test_calibration_fits_any_weight_of_rejections(weight: float) -> None:
    held = tokens(400, 1)
    fitted = fit(
        tokens(1500, 0), held, HeadRecipe(depth=0, epochs=8, rows=64, learning_rate=1e-2, reject_weight=weight)
    )

    assert float(predicted(fitted.weights, held.hidden, weight).mean()) == pytest.approx(
        float(held.accepted.mean()), abs=0.05
    )


def test_where_nothing_can_be_told_the_constant_is_kept() -> None:
    learn, held = tokens(300, 0), tokens(300, 1)
    noise = torch.rand(300, generator=torch.Generator().manual_seed(2))
    fitted = fit(Drafted(learn.hidden, noise), Drafted(held.hidden, noise.flip(0)), QUICK)

    assert fitted.cross_entropy <= fitted.constant + 1e-6


def test_the_epoch_that_is_best_held_out_is_kept() -> None:
    """Trained on a rule that the held-out tokens break, every epoch is worse than the beginning."""
    held = tokens(200, 1)
    fitted = fit(tokens(800, 0), Drafted(held.hidden, 1.35 - held.accepted), QUICK)

    assert fitted.epoch == 0
    assert fitted.cross_entropy == pytest.approx(fitted.constant, abs=1e-4)


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_blocks_are_of_their_own(depth: int) -> None:
    fitted = fit(tokens(200, 0), tokens(50, 1), HeadRecipe(depth=depth, epochs=2, rows=64))

    assert depth_of(fitted.weights) == depth
    blocks = [fitted.weights[f"blocks.{block}.weight"] for block in range(depth)]
    assert all(not torch.equal(one, other) for one, other in pairwise(blocks))
    assert not any(tensor.requires_grad for tensor in fitted.weights.values())


def test_the_same_seed_gives_the_same_head_and_leaves_torchs_alone() -> None:
    before = torch.random.get_rng_state()
    one, other = (fit(tokens(200, 0), tokens(50, 1), QUICK) for _ in range(2))

    assert all(torch.equal(one.weights[name], other.weights[name]) for name in one.weights)
    assert torch.equal(before, torch.random.get_rng_state())


def test_each_epoch_ticks() -> None:
    ticks: list[int] = []
    fit(tokens(100, 0), tokens(50, 1), QUICK, lambda: ticks.append(1))

    assert len(ticks) == QUICK.epochs


def test_nothing_to_learn_from_is_refused() -> None:
    with pytest.raises(ValueError, match="the answers give no drafted token to learn from"):
        joined([])
    with pytest.raises(ValueError, match="no drafted token"):
        joined([Drafted(torch.zeros(0, 3), torch.zeros(0))])
    assert len(joined([tokens(3, 0), tokens(4, 1)])) == 7


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"depth": -1}, "depth must be at least 0, got -1"),
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"rows": 0}, "rows must be at least 1, got 0"),
        ({"reject_weight": 0.0}, "reject_weight must be above 0, got 0"),
        ({"learning_rate": -1.0}, "learning_rate must be above 0, got -1"),
        ({"warmup": 1.0}, r"warm-up share must be in \[0, 1\), got 1"),
    ],
)
def test_a_recipe_that_means_nothing_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HeadRecipe(**given)
