"""Several prompts at once: every backend answers all of them, so many in flight, by turns whose order changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import sleep

from ..backend import Backend, Batch, PeerFailed
from ..interleaving import WARM_UP_TOKENS, order

REPEATS = 2
# what an OpenMP thread of one process spins after its last operation is over by then, and disturbs no other process
REST_SECONDS = 0.25


@dataclass(frozen=True, slots=True, eq=False)
class Loads:
    """batches[name, at_once] holds one for each repeat. failures: why a backend has none, or no further ones."""

    batches: dict[tuple[str, int], list[Batch]]
    failures: dict[str, str]


def measure_loads(
    backends: Sequence[Backend],
    prompts: Sequence[Sequence[int]],
    sizes: Sequence[int],
    max_new_tokens: int,
    tick: Callable[[], None] = lambda: None,
) -> Loads:
    """sizes: numbers of prompts in flight. tick is called once for each repeat of each size."""
    loads = Loads({}, {})
    for backend in backends:
        _ask(loads, backend, prompts[: max(sizes)], max(sizes), min(WARM_UP_TOKENS, max_new_tokens), keep=False)
    for repeat in range(REPEATS):
        for size in sizes:
            for backend in order(backends, repeat):
                if backend.name not in loads.failures:
                    sleep(REST_SECONDS)
                    _ask(loads, backend, prompts, size, max_new_tokens)
            tick()
    return loads


def _ask(
    loads: Loads, backend: Backend, prompts: Sequence[Sequence[int]], size: int, new: int, keep: bool = True
) -> None:
    try:
        batch = backend.answer_all(prompts, size, new)
    except PeerFailed as failure:
        loads.failures[backend.name] = str(failure)
        return
    if keep:
        loads.batches.setdefault((backend.name, size), []).append(batch)
