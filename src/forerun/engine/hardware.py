"""What a machine is called."""

from __future__ import annotations

import platform
from pathlib import Path

import torch


def hardware(device: torch.device | None = None) -> str:
    """The name of a device, of the processor if there is none."""
    if device is not None and device.type == "cuda":
        return torch.cuda.get_device_name(device)
    described = Path("/proc/cpuinfo")
    lines = described.read_text().splitlines() if described.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
