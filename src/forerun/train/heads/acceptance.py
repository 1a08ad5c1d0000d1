"""Training an acceptance head: a weighted binary cross-entropy on soft labels, and the epoch that is best held out.

Rejections are rare and count more: w (1 - a) on "rejected" and a on "accepted". That moves the optimum away from a, so
what a head says is calibrated before it is judged.

Source: Huang et al., SpecDec++, arXiv 2405.19715, section 3.3.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from ...models.files.classifier_heads import acceptance_logits, calibrated
from .acceptance_data import Drafted
from .recipes import HeadRecipe

SURE = 1e-6


@dataclass(frozen=True, slots=True)
class Fitted:
    """The best epoch's weights; epoch 0 is the constant that training begins with.

    Cross-entropies in nats on the held-out tokens, of the head and of the mean acceptance. divergence: the head's mean KL
    from the labels, what is left when the labels' own entropy is taken off.
    """

    weights: dict[str, Tensor]
    epoch: int
    cross_entropy: float
    constant: float
    divergence: float


def joined(parts: list[Drafted]) -> Drafted:
    """Raises ValueError where there is no drafted token in them."""
    if not sum(map(len, parts)):
        raise ValueError("the answers give no drafted token to learn from; take more or longer answers")
    return Drafted(torch.cat([one.hidden for one in parts]), torch.cat([one.accepted for one in parts]))


def fit(learn: Drafted, held: Drafted, recipe: HeadRecipe, tick: Callable[[], None] = lambda: None) -> Fitted:
    """Train on some drafted tokens and keep the epoch that is best on the others; tick is called after each epoch."""
    generator = torch.Generator().manual_seed(recipe.seed)
    weights = _begun(learn, recipe, generator)
    learnt = [tensor for name, tensor in weights.items() if name != "scale"]
    optimiser = torch.optim.AdamW(learnt, lr=recipe.learning_rate, weight_decay=recipe.weight_decay)
    steps = recipe.epochs * math.ceil(len(learn) / recipe.rows)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: _rate(step, steps, recipe.warmup))
    best = _judged(weights, learn, held, recipe.reject_weight, 0)
    for epoch in range(1, recipe.epochs + 1):
        for rows in torch.randperm(len(learn), generator=generator).split(recipe.rows):
            optimiser.zero_grad()
            logits = acceptance_logits(weights, learn.hidden[rows])
            weighted_loss(logits, learn.accepted[rows], recipe.reject_weight).backward()
            optimiser.step()
            schedule.step()
        now = _judged(weights, learn, held, recipe.reject_weight, epoch)
        if now.cross_entropy < best.cross_entropy:
            best = now
        tick()
    return best


def weighted_loss(logits: Tensor, accepted: Tensor, reject_weight: float) -> Tensor:
    """Of logits [n, 2], rejected and accepted, and labels [n]; divided by the sum of the weights."""
    logs = log_softmax(logits.float(), -1)
    rejecting = reject_weight * (1 - accepted)
    return -(rejecting * logs[:, 0] + accepted * logs[:, 1]).sum() / (rejecting + accepted).sum()


def predicted(weights: dict[str, Tensor], hidden: Tensor, reject_weight: float) -> Tensor:
    """Calibrated probabilities [n] of acceptance."""
    with torch.no_grad():
        return calibrated(acceptance_logits(weights, hidden).softmax(-1)[:, 1], reject_weight)


def cross_entropy(said: Tensor, accepted: Tensor) -> float:
    """In nats, of probabilities and soft labels [n]."""
    said = said.double().clamp(SURE, 1 - SURE)
    labels = accepted.double()
    return float(-(labels * said.log() + (1 - labels) * (1 - said).log()).mean())


def _begun(learn: Drafted, recipe: HeadRecipe, generator: torch.Generator) -> dict[str, Tensor]:
    """Blocks at random, a last layer that says the mean acceptance; the scale brings hidden states to about 1."""
    width, mean = learn.hidden.shape[1], learn.accepted.mean().clamp(SURE, 1 - SURE)
    odds = mean / (recipe.reject_weight * (1 - mean))
    weights = {"out.weight": torch.zeros(2, width), "out.bias": torch.stack([-odds.log() / 2, odds.log() / 2])}
    for block in range(recipe.depth):
        weights[f"blocks.{block}.weight"] = torch.randn(width, width, generator=generator) / width**0.5
        weights[f"blocks.{block}.bias"] = torch.zeros(width)
    for tensor in weights.values():
        tensor.requires_grad_()
    weights["scale"] = learn.hidden.square().mean().sqrt().clamp_min(SURE).reciprocal().reshape(1)
    return weights


def _judged(weights: dict[str, Tensor], learn: Drafted, held: Drafted, reject_weight: float, epoch: int) -> Fitted:
    own = cross_entropy(predicted(weights, held.hidden, reject_weight), held.accepted)
    always = learn.accepted.mean().expand_as(held.accepted)
    return Fitted(
        weights={name: tensor.detach().clone() for name, tensor in weights.items()},
        epoch=epoch,
        cross_entropy=own,
        constant=cross_entropy(always, held.accepted),
        divergence=own - cross_entropy(held.accepted, held.accepted),
    )


def _rate(step: int, steps: int, warmup: float) -> float:
    """A linear rise, then a cosine to 0."""
    rising = max(1, round(warmup * steps))
    if step < rising:
        return (step + 1) / rising
    return 0.5 * (1 + math.cos(math.pi * (step - rising) / max(1, steps - rising)))
