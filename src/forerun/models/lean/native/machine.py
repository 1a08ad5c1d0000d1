"""What this machine has for native steps: instruction sets, and how fast it reads weights."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import final

import torch

from .library import LEVELS, Library, built, choose, load, processor_levels

# More than caches hold, as weights are.
BYTES = 128 << 20
READS = 7


@final
@dataclass(frozen=True, slots=True)
class Machine:
    """built and usable name levels; kernels is the chosen one, "" for torch's operations, reason says why these.

    bandwidth: bytes a second that `threads` threads read, None without kernels that could read.
    """

    built: tuple[str, ...]
    usable: tuple[str, ...]
    kernels: str
    reason: str
    threads: int
    bandwidth: float | None

    def best_seconds(self, nbytes: int) -> float | None:
        """What a step takes at best that reads so many bytes of weights once."""
        return None if self.bandwidth is None else nbytes / self.bandwidth


def machine() -> Machine:
    """Look and measure; it takes about a tenth of a second. Raises UnsupportedOption on an unknown FORERUN_NATIVE."""
    choice = choose()
    usable = tuple(processor_levels())
    chosen = isinstance(choice, Library)
    reader = load(usable[-1]) if usable else None
    return Machine(
        built=tuple(level for level in LEVELS if built(level) is not None),
        usable=usable,
        kernels=choice.level if isinstance(choice, Library) else "",
        reason="the processor has what they need" if chosen else str(choice),
        threads=torch.get_num_threads(),
        bandwidth=None if reader is None else read_bandwidth(reader),
    )


def read_bandwidth(library: Library, nbytes: int = BYTES) -> float:
    """Bytes a second of the fastest of some reads, by as many threads as torch has."""
    room = torch.ones(nbytes, dtype=torch.uint8)
    times = []
    for _ in range(READS):
        begun = perf_counter()
        library.functions.forerun_read(room.data_ptr(), nbytes, torch.get_num_threads())
        times.append(perf_counter() - begun)
    return nbytes / min(times)
