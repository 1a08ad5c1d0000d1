"""ARM's kernels, cross-compiled and emulated: forwards have the bits of x86, for all that sanitize.cpp runs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from forerun.models.lean.native import library

SOURCES = Path(library.__file__).parent / "cpp"
COMPILER, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"
FLAGS = ("-std=c++20", "-O1", "-pthread", "-static", "-ffp-contract=off", "-Wno-psabi")
MISSING = [name for name in (COMPILER, EMULATOR) if shutil.which(name) is None]


@pytest.mark.skipif(
    bool(MISSING), reason=f"{' and '.join(MISSING)} missing; Debian has g++-aarch64-linux-gnu, qemu-user"
)
def test_forwards_have_the_bits_of_other_processors(tmp_path: Path) -> None:
    program = tmp_path / "forwards"
    sources = [str(Path(__file__).parent / "sanitize.cpp"), *map(str, sorted(SOURCES.glob("*.cpp")))]
    subprocess.run(
        [COMPILER, *FLAGS, "-march=armv8.2-a+dotprod", f"-I{SOURCES}", *sources, "-o", str(program)],
        check=True,
        timeout=600,
    )
    ran = subprocess.run([EMULATOR, str(program)], capture_output=True, text=True, timeout=600, check=False)
    assert (ran.returncode, ran.stdout) == (0, "native step: nothing found\n")
