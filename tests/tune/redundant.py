"""A tiny model that is trained to do without some of its sublayers, and a price for each of its 4,096 skip sets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import forerun
from forerun.core.cost import Cost, Point
from forerun.models.packed.plan import LayerPlan
from forerun.testing import tiny_model
from forerun.tune.skipping.match_rate import MatchRate, PlanCost, Recorded, record, time_per_token
from forerun.tune.skipping.space import SkipSpace

LAYERS, WORDS = 6, 24
TARGET = Cost(
    "tiny", "HFRunner", "float32", "full", tuple(Point(rows, 0, 10 + 0.3 * rows) for rows in (1, 2, 4, 8, 16))
)
COST = PlanCost(attention=0.08, mlp=0.07)


@dataclass(frozen=True)
class Redundant:
    engine: forerun.Engine
    space: SkipSpace
    rate: MatchRate
    prices: dict[LayerPlan, float]

    def price(self, plan: LayerPlan) -> float:
        return self.prices[plan]

    @property
    def least(self) -> float:
        return min(self.prices.values())


@cache
def redundant(steps: int = 120) -> Redundant:
    model = _trained(steps)
    engine = forerun.load(model)
    generator = torch.Generator().manual_seed(5)
    prompts = [_texts(1, 6, generator)[0].tolist() for _ in range(6)]
    answers = record(engine, prompts, 12)
    space = SkipSpace(LAYERS)
    return Redundant(engine, space, MatchRate(engine.runner, answers), _prices(model, space, answers))


def _texts(count: int, length: int, generator: torch.Generator) -> Tensor:
    """Each word follows from the two before it, so that both attention and MLPs are of use."""
    text = torch.randint(WORDS, (count, length), generator=generator)
    for place in range(2, length):
        text[:, place] = (5 * text[:, place - 1] + 7 * text[:, place - 2] + 3) % WORDS
    return text


def _masked(model: Any, keep: Tensor) -> list[Any]:
    """Hooks that multiply what sublayer i gives for example b by keep[b, i]."""

    def scale(column: int) -> Callable[..., Any]:
        def hook(module: Any, inputs: Any, output: Any) -> Any:
            factor = keep[:, column, None, None]
            return (output[0] * factor, *output[1:]) if isinstance(output, tuple) else output * factor

        return hook

    hooks = []
    for index, layer in enumerate(model.model.layers):
        hooks.append(layer.self_attn.register_forward_hook(scale(2 * index)))
        hooks.append(layer.mlp.register_forward_hook(scale(2 * index + 1)))
    return hooks


def _trained(steps: int) -> Any:
    model = tiny_model("llama", num_hidden_layers=LAYERS, vocab_size=WORDS)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim >= 2:
                parameter *= 0.4
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    model.train()
    dropped = torch.linspace(0.05, 0.5, 2 * LAYERS)[torch.randperm(2 * LAYERS, generator=generator)]
    for _ in range(steps):
        ids = _texts(24, 14, generator)
        keep = (torch.rand(len(ids), 2 * LAYERS, generator=generator) >= dropped).float()
        hooks = _masked(model, keep)
        logits = model(input_ids=ids, use_cache=False).logits
        loss = F.cross_entropy(logits[:, 1:-1].flatten(0, 1), ids[:, 2:].flatten())
        for hook in hooks:
            hook.remove()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


@torch.no_grad()
def _prices(model: Any, space: SkipSpace, answers: list[Recorded]) -> dict[LayerPlan, float]:
    """Time per verified token of every set, by the match rate that its own keys give: all sets in one batch per answer."""
    sets = 2 ** len(space.sublayers)
    skipped = (torch.arange(sets)[:, None] >> torch.arange(len(space.sublayers))) & 1
    right = torch.zeros(sets)
    total = 0
    hooks = _masked(model, 1.0 - skipped.float())
    for answer in answers:
        ids = torch.tensor(answer.ids)
        said = (
            model(input_ids=ids[None, :-1].expand(sets, -1), use_cache=False).logits[:, answer.start - 1 :].argmax(-1)
        )
        right += (said == ids[answer.start :]).sum(1)
        total += len(ids) - answer.start
    for hook in hooks:
        hook.remove()
    prices = {}
    for row, matched in zip(skipped.tolist(), right.tolist(), strict=True):
        plan = space.plan(dict(zip(space.variables, row, strict=True)))
        prices[plan] = time_per_token(matched / total, COST(plan), TARGET)
    return prices
