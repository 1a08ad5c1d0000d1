"""What a measurement was made with. Every reported figure comes with it."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from typing import Any

import torch

from ..models.packed.runner import HFRunner
from .engine import Engine
from .hardware import hardware

__all__ = ["conditions", "hardware"]

PACKAGES = ("forerun", "torch", "transformers")


def conditions(engine: Engine, command: str) -> dict[str, Any]:
    """Model, number format, device, threads, machine, versions, whether forwards are padded, and the command that ran."""
    return {
        "command": command,
        "model": engine.name,
        "dtype": str(engine.runner.dtype).removeprefix("torch."),
        "device": str(engine.runner.device),
        "hardware": hardware(engine.runner.device),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "padded": isinstance(engine.runner, HFRunner) and engine.runner.padding is not None,
        "python": platform.python_version(),
        "versions": {package: version(package) for package in PACKAGES},
    }
