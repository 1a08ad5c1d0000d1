"""The race: every contestant answers every prompt once, one after the other, in an order that changes with the prompt.

So noise and a drifting machine hit all alike, and nobody always runs first. A peer that fails drops out; the others go on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from .contestant import Contestant, PeerFailed, Sample

WARM_UP_TOKENS = 16
T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Race:
    """samples[name][i] answers prompt i. Whoever failed is in failures, with the reason, and not in samples."""

    samples: dict[str, list[Sample]]
    failures: dict[str, str]


def run_race(
    contestants: Sequence[Contestant],
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int,
    tick: Callable[[], None] = lambda: None,
) -> Race:
    """Warm up on the first prompt, then take the times. tick is called once a prompt.

    Raises ValueError where there is nothing to measure.
    """
    if max_new_tokens < 2:
        raise ValueError(f"max-new-tokens must be at least 2 to be timed, got {max_new_tokens}")
    if not contestants or not prompts:
        raise ValueError("a benchmark needs at least one method and one prompt")
    names = [contestant.name for contestant in contestants]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"two methods are called {', '.join(sorted(twice))}; give each a name of its own")
    race = Race({name: [] for name in names}, {})
    for contestant in contestants:
        _ask(race, contestant, prompts[0], min(WARM_UP_TOKENS, max_new_tokens), keep=False)
    for number, prompt in enumerate(prompts):
        for contestant in order(contestants, number):
            if contestant.name not in race.failures:
                _ask(race, contestant, prompt, max_new_tokens)
        tick()
    return race


def order(contestants: Sequence[T], number: int) -> list[T]:
    """Who answers prompt `number` when: the start moves on by one each time, every second round runs backwards."""
    start = number % len(contestants)
    turned = [*contestants[start:], *contestants[:start]]
    return turned[::-1] if (number // len(contestants)) % 2 else turned


def _ask(race: Race, contestant: Contestant, prompt: Sequence[int], max_new_tokens: int, keep: bool = True) -> None:
    try:
        sample = contestant.answer(prompt, max_new_tokens)
    except PeerFailed as failure:
        race.failures[contestant.name] = str(failure)
        del race.samples[contestant.name]
        return
    if keep:
        race.samples[contestant.name].append(sample)
