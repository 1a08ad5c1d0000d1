"""What a tuning run is given, and which of the prompts it may not see until its winner is judged."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from ..engine.engine import Engine
from ..engine.prompts.questions import Question, questions_in
from .candidates import Chosen
from .screening import SHORTEST_PROMPT

T = TypeVar("T")

HELD_OUT = 1 / 3
FEWEST_PROMPTS = 4


@dataclass(frozen=True, slots=True)
class Setup:
    """budget: seconds. storage: where the skip sets' study is kept. set_trials: no more sets than that."""

    chosen: Chosen
    budget: float
    storage: str | Path
    max_new_tokens: int = 64
    seed: int = 0
    own_weights: str = ""
    set_trials: int | None = None

    def __post_init__(self) -> None:
        if self.budget <= 0:
            raise ValueError(f"the budget must be above 0 seconds, got {self.budget:g}")
        if self.max_new_tokens < 2:
            raise ValueError(f"max-new-tokens must be at least 2 to be timed, got {self.max_new_tokens}")


def split(prompts: Sequence[Sequence[int]], seed: int) -> tuple[list[Sequence[int]], list[Sequence[int]]]:
    """Prompts to tune on, and those held out. Raises ValueError on too few."""
    known = [ids for ids in dict.fromkeys(map(tuple, prompts)) if len(ids) >= SHORTEST_PROMPT]
    if len(known) < FEWEST_PROMPTS:
        raise ValueError(
            f"tuning needs at least {FEWEST_PROMPTS} different prompts of {SHORTEST_PROMPT} tokens or more, a third of "
            f"which is held out; got {len(known)}"
        )
    return parted(list[Sequence[int]](known), seed)


def parted(known: Sequence[T], seed: int) -> tuple[list[T], list[T]]:
    """What to tune on, and what is held out."""
    shuffled = list(known)
    random.Random(seed).shuffle(shuffled)
    held = max(1, round(HELD_OUT * len(shuffled)))
    return shuffled[held:], shuffled[:held]


def lines_of(file: Path, wanted: Iterable[Sequence[int]], ids_of: Callable[[Question], Sequence[int]]) -> list[str]:
    """The lines of a prompts file that ask one of the wanted prompts, for a benchmark on them; equal prompts once."""
    left = set(map(tuple, wanted))
    found: list[str] = []
    for line, _, question in questions_in(file):
        ids = tuple(ids_of(question))
        if ids in left:
            left.remove(ids)
            found.append(line.text)
    return found


def about_run(setup: Setup, engine: Engine, prompts: Sequence[Sequence[int]]) -> dict[str, Any]:
    """What the log of a run belongs to; the budget may change from one go to the next."""
    return {
        "model": engine.identity.as_dict(),
        "weights": setup.own_weights,
        "runner": type(engine.runner).__name__,
        "prompts": [list(ids[:4]) + [len(ids)] for ids in prompts],
        "chosen": asdict(setup.chosen),
        "max_new_tokens": setup.max_new_tokens,
        "seed": setup.seed,
    }
