"""Interleaved measurement: every backend answers every prompt once, in an order that changes with the prompt.

So noise and a drifting machine affect all backends alike, and none always runs first. A peer that fails drops out; the
others go on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from .backend import Backend, PeerFailed, Sample

WARM_UP_TOKENS = 16
T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Measurements:
    """samples[name][i] answers prompt i. A backend that failed is in failures, with the reason, and not in samples."""

    samples: dict[str, list[Sample]]
    failures: dict[str, str]


def measure_interleaved(
    backends: Sequence[Backend],
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int,
    tick: Callable[[], None] = lambda: None,
) -> Measurements:
    """Warm up on the first prompt, then measure. tick is called once per prompt.

    Raises ValueError where there is nothing to measure.
    """
    if max_new_tokens < 2:
        raise ValueError(f"max-new-tokens must be at least 2 to be timed, got {max_new_tokens}")
    if not backends or not prompts:
        raise ValueError("a benchmark needs at least one method and one prompt")
    names = [backend.name for backend in backends]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"two methods are called {', '.join(sorted(twice))}; give each a name of its own")
    measurements = Measurements({name: [] for name in names}, {})
    for backend in backends:
        _ask(measurements, backend, prompts[0], min(WARM_UP_TOKENS, max_new_tokens), keep=False)
    for number, prompt in enumerate(prompts):
        for backend in order(backends, number):
            if backend.name not in measurements.failures:
                _ask(measurements, backend, prompt, max_new_tokens)
        tick()
    return measurements


def order(backends: Sequence[T], number: int) -> list[T]:
    """The order for prompt `number`: the first place moves on by one each time, and every second cycle runs backwards."""
    start = number % len(backends)
    turned = [*backends[start:], *backends[:start]]
    return turned[::-1] if (number // len(backends)) % 2 else turned


def _ask(
    measurements: Measurements, backend: Backend, prompt: Sequence[int], max_new_tokens: int, keep: bool = True
) -> None:
    try:
        sample = backend.answer(prompt, max_new_tokens)
    except PeerFailed as failure:
        measurements.failures[backend.name] = str(failure)
        del measurements.samples[backend.name]
        return
    if keep:
        measurements.samples[backend.name].append(sample)
