"""The native kernels that this machine has, and models that they run."""

from __future__ import annotations

from functools import cache

import pytest

from forerun.models.lean.native.library import SWITCH, Library, load, processor_levels
from forerun.models.lean.runner import LeanRunner
from forerun.testing import tiny_model

LEVELS = processor_levels()
needs_kernels = pytest.mark.skipif(not LEVELS, reason="forerun was installed without a compiler")
FAMILIES = (
    "llama",
    "mistral",
    "qwen2",
    "qwen3",
    "smollm3",
    "phi3",
    "granite",
    "gemma",
    "gemma3_text",
    "olmo2",
    "olmo3",
)


def kernels(level: str = "") -> Library:
    """Of this level, or the best that the processor runs."""
    found = load(level or LEVELS[-1])
    assert found is not None
    return found


@cache
def native(family: str, level: str = "", weights: str = "int4") -> LeanRunner:
    """A tiny model on native kernels."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SWITCH, level or LEVELS[-1])
        runner = LeanRunner.from_model(tiny_model(family, intermediate_size=64), weights)
    assert isinstance(runner.native, Library)
    return runner
