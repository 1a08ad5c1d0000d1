"""How students are taught: what a command sets, with its defaults."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DistilRecipe:
    """passes: how many drafted tokens deep; fade: the weight of each against the one before. rows: a batch's size.

    vocabulary: over how many of the most frequent tokens the loss is.
    """

    epochs: int = 3
    passes: int = 2
    fade: float = 0.7
    rows: int = 512
    learning_rate: float = 1.5e-3
    warmup: int = 50
    weight_decay: float = 0.01
    vocabulary: int = 8192
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "passes", "rows", "vocabulary"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not self.fade >= 0:
            raise ValueError(f"fade must be at least 0, got {self.fade}")
        if not self.learning_rate > 0:
            raise ValueError(f"the learning rate must be above 0, got {self.learning_rate}")
