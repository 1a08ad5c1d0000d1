"""How heads are trained: what a command sets, with its defaults."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadRecipe:
    """depth: residual blocks; 0 is a linear probe. mixing is r. rows: a batch's size in drafted tokens."""

    depth: int = 3
    reject_weight: float = 6.0
    mixing: float = 0.15
    epochs: int = 10
    rows: int = 256
    learning_rate: float = 5e-4
    warmup: float = 0.03
    weight_decay: float = 0.01
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("depth", 0), ("epochs", 1), ("rows", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")
        for name in ("reject_weight", "learning_rate"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, got {getattr(self, name)}")
        if not 0 <= self.warmup < 1:
            raise ValueError(f"the warm-up share must be in [0, 1), got {self.warmup}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoRecipe:
    """top: how many probabilities are read; width: of the hidden layer. The epoch that is best held out is kept."""

    top: int = 10
    width: int = 64
    epochs: int = 30
    rows: int = 256
    learning_rate: float = 3e-3
    weight_decay: float = 0.01
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("top", "width", "epochs", "rows"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not self.learning_rate > 0:
            raise ValueError(f"the learning rate must be above 0, got {self.learning_rate}")
