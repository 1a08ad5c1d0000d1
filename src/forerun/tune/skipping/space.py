"""The space of skip sets: for each layer, whether its attention is left out and whether its MLP is, 2L binary variables.

A set is a LayerPlan; a point of the space is its variables by name. A search starts from the empty set, from the sublayers
that do the least harm alone, and from sets that others published for their models, stretched over this one's depth.

Source: Zhang et al., Draft & Verify, arXiv 2309.08168.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...models.packed.plan import LayerPlan

Sublayer = tuple[str, int]  # "attention" or "mlp", and the layer

GREEDY_SHARES = (1 / 8, 1 / 4, 1 / 2)


@dataclass(frozen=True, slots=True)
class SkipSpace:
    num_layers: int

    @property
    def sublayers(self) -> tuple[Sublayer, ...]:
        return tuple((kind, layer) for layer in range(self.num_layers) for kind in ("attention", "mlp"))

    @property
    def variables(self) -> tuple[str, ...]:
        """Their names, such as attention.3, in the order of sublayers."""
        return tuple(f"{kind}.{layer}" for kind, layer in self.sublayers)

    def plan(self, point: Mapping[str, int]) -> LayerPlan:
        """The set of a point: 1 leaves a sublayer out."""
        return self.without([one for one, name in zip(self.sublayers, self.variables, strict=True) if point[name]])

    def point(self, plan: LayerPlan) -> dict[str, int]:
        """The point of a skip set. Raises ValueError on a plan that is more than a skip set of this model."""
        if LayerPlan.skip(self.num_layers, plan.attention, plan.mlp) != plan:
            raise ValueError(f"only skipped sublayers are searched, got {plan}")
        left_out = {"attention": plan.attention, "mlp": plan.mlp}
        return {f"{kind}.{layer}": int(layer in left_out[kind]) for kind, layer in self.sublayers}

    def without(self, sublayers: Sequence[Sublayer]) -> LayerPlan:
        left_out = {kind: [layer for one, layer in sublayers if one == kind] for kind in ("attention", "mlp")}
        return LayerPlan.skip(self.num_layers, **left_out)


@dataclass(frozen=True, slots=True)
class Published:
    """The skip set that Draft & Verify's authors ship for a model of so many layers."""

    num_layers: int
    attention: tuple[int, ...]
    mlp: tuple[int, ...]

    def scaled(self, num_layers: int) -> LayerPlan:
        """Leave out what the published set leaves out at the same relative depth."""
        end = max(num_layers - 1, 1)
        there = [round(layer * (self.num_layers - 1) / end) for layer in range(num_layers)]
        return LayerPlan.skip(
            num_layers,
            [layer for layer, place in enumerate(there) if place in self.attention],
            [layer for layer, place in enumerate(there) if place in self.mlp],
        )


# skip_layers.json of github.com/dilab-zju/self-speculative-decoding at 688db8b
PUBLISHED = {
    "llama-2-13b": Published(
        40,
        (3, 5, 6, 8, 10, 11, 14, 15, 18, *range(22, 32), *range(33, 38)),
        (6, 9, 10, 11, 15, 24, 25, 27, 28, 35),
    ),
    "llama-2-13b-chat": Published(
        40,
        (*range(7, 12), 14, 15, 18, 22, 23, 24, *range(26, 39)),
        (7, 10, 11, 14, 27, 30, 32, 33, 37, 38),
    ),
    "codellama-13b": Published(
        40,
        (5, 6, 9, 10, 11, 14, 15, 16, 21, 23, 24, *range(26, 33), *range(34, 38)),
        (10, 11, 12, 14, 15, 25, 26, 27, 30, 32, 33, 34),
    ),
}


def greedy_sets(space: SkipSpace, harms: Mapping[Sublayer, float]) -> Iterator[tuple[str, LayerPlan]]:
    """Named sets of the sublayers that do the least harm alone: an eighth, a quarter and a half of those tried."""
    ordered = sorted(harms, key=lambda one: harms[one])
    for size in sorted({max(1, round(len(ordered) * share)) for share in GREEDY_SHARES}):
        yield f"greedy {size}", space.without(ordered[:size])


def starting_points(space: SkipSpace, harms: Mapping[Sublayer, float]) -> dict[str, LayerPlan]:
    """Named sets to begin with, the empty one first; equal ones once, under the first name.

    harms: the share of tokens that a sublayer's absence loses, of those tried; of none there are no greedy sets.
    """
    named = {"nothing": LayerPlan()}
    if harms:
        named.update(greedy_sets(space, harms))
    named.update((f"{name} scaled", one.scaled(space.num_layers)) for name, one in PUBLISHED.items())
    seen: dict[LayerPlan, str] = {}
    for name, plan in named.items():
        seen.setdefault(plan, name)
    return {name: plan for plan, name in seen.items()}
