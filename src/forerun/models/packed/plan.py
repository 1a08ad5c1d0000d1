"""LayerPlan: which part of a model a forward runs. Skipped layers and early exit are both plans.

Skipping makes a sublayer's contribution to the residual stream zero, which fits pre-norm, post-norm and parallel blocks.
Sources: Zhang et al., arXiv 2309.08168 (attention and MLP sublayers apart); Elhoushi et al., arXiv 2404.16710 (early exit,
whose rows the full model can complete).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from ...errors import UnsupportedOption

ActivationBits = Literal[8, 16]


@dataclass(frozen=True, slots=True)
class LayerPlan:
    """Indices of the attention and MLP sublayers that are left out. The empty plan is the full model.

    exit_layer = E: the plan is a pure early exit: layers 0..E-1 whole, nothing after. weights names a smaller
    copy of the weights, head a restricted vocabulary, both made by the runner (add_weights, add_head); "" is the model's
    own. activations: in how many bits the rows of native products are held, 8 or 16; 0 is the runner's own.
    """

    attention: frozenset[int] = frozenset()
    mlp: frozenset[int] = frozenset()
    exit_layer: int | None = None
    weights: str = ""
    head: str = ""
    activations: int = 0

    def __post_init__(self) -> None:
        if self.activations:
            check_activations(self.activations)
        if self.exit_layer is not None:
            rest = frozenset(range(self.exit_layer, max(self.attention, default=self.exit_layer) + 1))
            if not self.attention == self.mlp == rest:
                raise ValueError(
                    f"exit_layer {self.exit_layer} must leave out all layers from there on and nothing else"
                )

    @classmethod
    def early_exit(cls, exit_layer: int, num_layers: int) -> LayerPlan:
        if not 1 <= exit_layer < num_layers:
            raise ValueError(
                f"exit_layer must be in 1..{num_layers - 1} for a model of {num_layers} layers, got {exit_layer}"
            )
        rest = frozenset(range(exit_layer, num_layers))
        return cls(rest, rest, exit_layer)

    @classmethod
    def skip(cls, num_layers: int, attention: Iterable[int] = (), mlp: Iterable[int] = ()) -> LayerPlan:
        plan = cls(frozenset(attention), frozenset(mlp))
        for index in sorted(plan.attention | plan.mlp):
            if not 0 <= index < num_layers:
                raise ValueError(f"a skipped layer must be in 0..{num_layers - 1}, got {index}")
        return plan

    @property
    def resumes_at(self) -> int | None:
        """The layer from which the whole model can continue with this plan's rows; None if it must recompute them.

        Rows of other weights or activations never resume: their states are not the model's own.
        """
        return None if self.weights or self.activations else self.exit_layer

    def skips_layer(self, layer: int) -> bool:
        return layer in self.attention and layer in self.mlp


def check_activations(bits: int) -> None:
    """Raise UnsupportedOption on a number of bits that native products don't take."""
    if bits not in get_args(ActivationBits):
        raise UnsupportedOption(f"activations are held in 8 or 16 bits, got {bits}")


FULL = LayerPlan()
