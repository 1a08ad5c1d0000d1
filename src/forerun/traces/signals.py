"""Signals as a list of numbers, as traces hold them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.values import Signals


def numbers_of(signals: Signals | None) -> list[Any] | None:
    """Seven digits tell float32 numbers apart well enough, and halve the file."""
    if signals is None:
        return None
    return [*map(_short, (signals.confidence, signals.best, signals.entropy)), [_short(value) for value in signals.top]]


def _short(value: float) -> float:
    return float(f"{value:.7g}")


def signals_from(numbers: Sequence[Any] | None) -> Signals | None:
    """The signals that numbers_of gave."""
    if numbers is None:
        return None
    confidence, best, entropy, top = numbers
    return Signals(confidence, best, entropy, tuple(top))
