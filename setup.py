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
AVX2 = ["-mavx2", "-mfma"]
LEVELS = {
    # at -O3 vectors that no instruction holds take half a minute
    "portable": ["-O2"],
    "avx2": ["-O3", *AVX2],
    "avxvnni": ["-O3", *AVX2, "-mavxvnni"],
    "avx512": ["-O3", *AVX2, *(f"-mavx512{part}" for part in ("f", "bw", "vl", "dq", "vnni"))],
    "neon_dotprod": ["-O3", "-march=armv8.2-a+dotprod"],
}
MACHINES = {
    "x86_64": ("portable", "avx2", "avxvnni", "avx512"),
    "amd64": ("portable", "avx2", "avxvnni", "avx512"),
    "aarch64": ("portable", "neon_dotprod"),
    "arm64": ("portable", "neon_dotprod"),
}


def kernels() -> list[Extension]:
    """The libraries that a compiler can make for this machine."""
    if sys.platform not in ("linux", "darwin"):
        return []
    levels = MACHINES.get(platform.machine().lower(), ("portable",))
    return [
        Extension(
            f"forerun.models.lean.native._{level}",
            sources=sorted(map(str, FOLDER.glob("*.cpp"))),
            depends=sorted(map(str, FOLDER.rglob("*.h"))),
            extra_compile_args=[*FLAGS, *LEVELS[level]],
            extra_link_args=["-pthread"],
            language="c++",
            optional=True,
        )
        for level in levels
    ]


setup(ext_modules=kernels())
