"""How rows of logits are read by whoever can do it without running over the vocabulary again and again."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor

from .law import Law
from .values import Sampling


class Chooser(ABC):
    """Reads rows of its runner's logits, whole or cut at their end. None stands for what it leaves to torch's operations."""

    @abstractmethod
    def best(self, rows: Tensor) -> tuple[list[float], list[int]] | None:
        """The largest value of each row [n, V], or of one [V], NaN where there is one, and its first place."""

    @abstractmethod
    def filtered(self, row: Tensor, sampling: Sampling) -> Law | None:
        """The law of a row [V] without a history, of the tokens that temperature and filters leave."""
