"""The native kernels, one library an instruction set. Each is optional: without a compiler forerun installs without them."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

from setuptools import Extension, setup

FOLDER = Path("src/forerun/models/lean/native/cpp")
# the uninitialised values are in g++ 12's own headers
QUIET = ["-Wno-psabi", "-Wno-uninitialized", "-Wno-maybe-uninitialized"]
FLAGS = ["-std=c++20", "-pthread", "-ffp-contract=off", "-fvisibility=hidden", *QUIET]
LEVELS = {
    # at -O3 vectors that no instruction holds take half a minute
    "portable": ["-O2"],
    "avx2": ["-O3", "-mavx2", "-mfma"],
    "avx512": ["-O3", "-mavx2", "-mfma", *(f"-mavx512{part}" for part in ("f", "bw", "vl", "dq", "vnni"))],
}


def kernels() -> list[Extension]:
    """The libraries that a compiler can make for this machine."""
    if sys.platform not in ("linux", "darwin"):
        return []
    intel = platform.machine().lower() in ("x86_64", "amd64")
    return [
        Extension(
            f"forerun.models.lean.native._{level}",
            sources=sorted(map(str, FOLDER.glob("*.cpp"))),
            depends=sorted(map(str, FOLDER.glob("*.h"))),
            extra_compile_args=[*FLAGS, *flags],
            extra_link_args=["-pthread"],
            language="c++",
            optional=True,
        )
        for level, flags in LEVELS.items()
        if intel or level == "portable"
    ]


setup(ext_modules=kernels())
