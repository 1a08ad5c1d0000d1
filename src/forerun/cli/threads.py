"""--threads: how many threads compute, in torch's operations and in the native step alike."""

from __future__ import annotations

import os
from inspect import Parameter
from typing import Annotated

import typer


def cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if "sched_getaffinity" in dir(os) else os.cpu_count() or 1


def use_threads(threads: int | None) -> int | None:
    """Compute with so many threads from here on; None leaves torch's default. The native step asks torch."""
    if threads is None:
        return None
    if not 1 <= threads <= cores():
        raise ValueError(
            f"--threads must be 1 to {cores()} (the cores here), got {threads}; more would wait for each other"
        )
    import torch

    torch.set_num_threads(threads)
    return threads


THREADS = Parameter(
    "threads",
    Parameter.KEYWORD_ONLY,
    default=None,
    annotation=Annotated[
        int | None,
        typer.Option(
            "--threads",
            help="Threads that compute, at most the cores; torch's default if not given.",
            rich_help_panel="Model",
            callback=use_threads,
        ),
    ],
)
