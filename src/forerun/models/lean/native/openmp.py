"""What the environment tells OpenMP, whose threads torch's operations run on beside the native step's own."""

from __future__ import annotations

import os
from collections.abc import Mapping

NAMES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OMP_WAIT_POLICY",
    "GOMP_SPINCOUNT",
    "KMP_BLOCKTIME",
    "OMP_PROC_BIND",
    "OMP_PLACES",
    "GOMP_CPU_AFFINITY",
    "KMP_AFFINITY",
)
ENDLESS = {"OMP_WAIT_POLICY": ("active",), "GOMP_SPINCOUNT": ("infinite", "infinity"), "KMP_BLOCKTIME": ("infinite",)}


def settings(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Those that are set."""
    found = os.environ if environment is None else environment
    return {name: found[name] for name in NAMES if found.get(name)}


def spins(told: Mapping[str, str]) -> str | None:
    """The setting by which OpenMP's threads wait without ever sleeping, so that they hold cores from the native step."""
    return next((name for name, values in ENDLESS.items() if told.get(name, "").lower() in values), None)
