"""The compiled kernels: one library an instruction set, of which the processor and FORERUN_NATIVE choose one.

A library is there if forerun was installed where a C++ compiler is. It is asked for its version before anything else, since
an older build may stand beside newer sources.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from ctypes import c_int, c_int64, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import final

from ....errors import UnsupportedOption
from .views import CallView, ChainView, FiltersView, MatrixView

VERSION = 5
SWITCH = "FORERUN_NATIVE"
# from the least to the most that a processor needs to have, with its bit in forerun_processor (cpp/processor.h)
LEVELS = {"portable": 0, "neon_dotprod": 8, "avx2": 1, "avxvnni": 4, "avx512": 2}
# where the native step is known to be faster than torch's operations
FAST = ("avx2", "avxvnni", "avx512")
FAILURES = {
    1: "a token is not in the model's vocabulary",
    2: "there is not enough memory for a forward of so many rows",
    3: "rows, slots or paths don't fit each other",
    4: "the model's shapes don't fit each other, or a part of it is missing",
}


@final
@dataclass(frozen=True, slots=True, eq=False)
class Library:
    """One instruction set's kernels, loaded."""

    level: str
    functions: ctypes.CDLL


def built(level: str) -> Path | None:
    """The library of this level; None where it wasn't built."""
    return next(iter(sorted(Path(__file__).parent.glob(f"_{level}.*so"))), None)


def processor_levels() -> list[str]:
    """The levels that this processor runs and that were built, the least first. Empty without the portable one."""
    portable = load("portable")
    if portable is None:
        return []
    has = portable.functions.forerun_processor()
    return [level for level, bit in LEVELS.items() if (not bit or has & bit) and load(level) is not None]


def load(level: str) -> Library | None:
    """The library of this level, None where it is missing or of another version. The processor is not asked."""
    path = built(level)
    if path is None:
        return None
    try:
        functions = ctypes.CDLL(str(path))
        if functions.forerun_version() != VERSION:
            return None
        declare(functions)
    except (OSError, AttributeError):
        # of another machine, cut short, or older than these sources
        return None
    return Library(level, functions)


def declare(functions: ctypes.CDLL) -> None:
    functions.forerun_workspace.restype = c_void_p
    functions.forerun_release.argtypes = [c_void_p]
    functions.forerun_release.restype = None
    functions.forerun_forward.argtypes = [ctypes.POINTER(CallView), c_void_p]
    functions.forerun_chain.argtypes = [ctypes.POINTER(CallView), ctypes.POINTER(ChainView), c_void_p]
    functions.forerun_best.argtypes = [c_void_p, c_int, c_int64, c_int, c_void_p, c_void_p]
    functions.forerun_filtered.argtypes = [c_void_p, c_int, ctypes.POINTER(FiltersView), c_int, c_void_p, c_void_p]
    functions.forerun_linear.argtypes = [ctypes.POINTER(MatrixView), c_void_p, c_int, c_void_p, c_int, c_int]
    functions.forerun_large_pages.argtypes = [c_void_p, c_int64]
    functions.forerun_large_pages.restype = None
    functions.forerun_read.argtypes = [c_void_p, c_int64, c_int]


def choose(environment: Mapping[str, str] | None = None) -> Library | str:
    """The kernels to use, or the reason why there are none. Raises UnsupportedOption on an unknown FORERUN_NATIVE."""
    wanted = (os.environ if environment is None else environment).get(SWITCH, "")
    if wanted and wanted not in ("off", *LEVELS):
        raise UnsupportedOption(f"{SWITCH}={wanted} is unknown; known: off, {', '.join(LEVELS)}")
    if wanted == "off":
        return f"{SWITCH}=off says so"
    there = processor_levels()
    if not there:
        return "the native kernels were not built; install forerun again where g++ or clang++ is"
    names = list(LEVELS)
    fitting = [level for level in there if not wanted or names.index(level) <= names.index(wanted)]
    best = fitting[-1]
    if not wanted and best not in FAST:
        return f"no kernels known to be fast here; {SWITCH}={best} uses those that run"
    library = load(best)
    assert library is not None, "it was loaded a moment ago"
    return library


def check(status: int) -> None:
    """Raise ValueError on what a native function refused."""
    if status:
        raise ValueError(FAILURES.get(status, f"the native step failed with status {status}"))
