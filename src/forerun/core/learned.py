"""What methods learn for all requests, so that a file can keep it from one start to the next."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, ParamSpec, TypeVar, final

P = ParamSpec("P")
T = TypeVar("T")


class Learned(ABC):
    """Something that is learnt: it changes how fast texts are written, never the texts."""

    @abstractmethod
    def as_data(self) -> Any:
        """What was learnt, of what JSON has; bounded."""

    @abstractmethod
    def recall(self, data: Any) -> None:
        """Go on from what as_data gave. Raises ValueError where it isn't that, and nothing has changed then."""


@final
@dataclass(frozen=True, slots=True)
class Learning(Generic[P, T]):
    """A factory of drafters or policies that share what they learn. learned: by name.

    choice: a line on what was chosen and why, of a method that chooses. keep_as: the name to keep `learned` under from one
    start to the next, "" for not at all.
    """

    make: Callable[P, T]
    learned: Mapping[str, Learned] = field(default_factory=dict)
    choice: str = ""
    keep_as: str = ""

    def __call__(self, *args: P.args, **options: P.kwargs) -> T:
        return self.make(*args, **options)


def learned_by(factory: Callable[..., Any]) -> Mapping[str, Learned]:
    """What a factory's products share, nothing where it doesn't say."""
    return factory.learned if isinstance(factory, Learning) else {}


def joined(**parts: Callable[..., Any]) -> dict[str, Learned]:
    """What several factories learn, each under its name."""
    return {f"{name} {own}": one for name, factory in parts.items() for own, one in learned_by(factory).items()}


def numbers(data: Any, count: int, least: float = 0.0, most: float = 1e12) -> list[float]:
    """A list of so many numbers. Raises ValueError where data isn't that, or one lies outside least..most."""
    if not isinstance(data, list) or len(data) != count:
        raise ValueError(f"{count} numbers were to be kept, got {str(data)[:40]}")
    for value in data:
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise ValueError(f"a kept number must be in {least}..{most}, got {str(value)[:40]}")
    return [float(value) for value in data]
