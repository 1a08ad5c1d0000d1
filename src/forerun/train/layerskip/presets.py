"""The settings of LayerSkip training for layers: the paper's values by name (arXiv 2404.16710, tables 8 and 9)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ...errors import UnsupportedOption
from .schedule import CURRICULA, TIMES, dropout_rates, exit_weights


@dataclass(frozen=True, slots=True)
class Recipe:
    """p_max is the dropout rate of the last layer, e_scale the weight of early exits; 0 and 0 is ordinary training.

    rotation is R of the rotational curriculum; 0 stands for one less than the model has layers. time is how the dropout
    rate runs over the steps. fresh draws new weights before training. Raises UnsupportedOption on values out of range.
    """

    p_max: float
    e_scale: float
    curriculum: str
    rotation: int
    time: str
    learning_rate: float
    fresh: bool = False

    def __post_init__(self) -> None:
        for name, value in (("p_max", self.p_max), ("e_scale", self.e_scale)):
            if not 0 <= value <= 1:
                raise UnsupportedOption(f"{name} must be within [0, 1], got {value}")
        for name, chosen, known in (("curriculum", self.curriculum, CURRICULA), ("time schedule", self.time, TIMES)):
            if chosen not in known:
                raise UnsupportedOption(f"unknown {name} {chosen!r}; known: {', '.join(known)}")
        if self.rotation < 0:
            raise UnsupportedOption(f"rotation must be 0 (one less than there are layers) or more, got {self.rotation}")
        if not self.learning_rate > 0:
            raise UnsupportedOption(f"the learning rate must be above 0, got {self.learning_rate}")

    @property
    def ordinary(self) -> bool:
        """Whether it is training as without LayerSkip."""
        return self.p_max == 0 and self.e_scale == 0

    def rates(self, step: int, steps: int, num_layers: int) -> tuple[float, ...]:
        return dropout_rates(step, steps, num_layers, self.p_max, self.time)

    def weights(self, step: int, steps: int, num_layers: int) -> Mapping[int, float]:
        rotation = self.rotation or max(1, num_layers - 1)
        return exit_weights(step, steps, num_layers, self.e_scale, self.curriculum, rotation)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


PRESETS: Mapping[str, Recipe] = {
    # Llama 1.5B
    "from_scratch": Recipe(0.1, 0.2, "rotational", 0, "exponential", 8e-4, fresh=True),
    # Llama2 7B
    "continual": Recipe(0.1, 0.2, "rotational", 8, "constant", 3e-5),
    # Llama 1.5B on TOPv2
    "fine_tune": Recipe(0.2, 1.0, "gradual", 0, "constant", 1e-4),
}


def preset(name: str) -> Recipe:
    """The recipe of this name; raises UnsupportedOption on an unknown one."""
    if name not in PRESETS:
        raise UnsupportedOption(f"unknown preset {name!r}; known: {', '.join(PRESETS)}")
    return PRESETS[name]
