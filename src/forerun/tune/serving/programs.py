"""The programs of other engines: where they are, and what they say of themselves."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence

from ...errors import UnsupportedOption

SECONDS = 120.0


def found_program(wanted: str, engine: str) -> str:
    """Its path. Raises UnsupportedOption where there is none that can be run."""
    path = shutil.which(wanted)
    if path is None:
        raise UnsupportedOption(
            f"{engine} is missing: no program {wanted!r} can be run here; install it, or say where it is: --program PATH"
        )
    return path


def said_by(command: Sequence[str], engine: str) -> str:
    """All that it prints. Raises UnsupportedOption where it fails."""
    try:
        ran = subprocess.run(
            list(command), capture_output=True, text=True, errors="replace", timeout=SECONDS, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnsupportedOption(f"{command[0]} can't be asked which {engine} it is: {error}") from error
    if ran.returncode:
        last = (ran.stderr.strip() or ran.stdout.strip() or "it says nothing").splitlines()[-1]
        raise UnsupportedOption(f"{command[0]} has no {engine} that runs ({last.strip()})")
    return ran.stdout + ran.stderr


def runs(command: Sequence[str]) -> bool:
    """Whether it ends well."""
    try:
        return (
            subprocess.run(list(command), capture_output=True, timeout=SECONDS, stdin=subprocess.DEVNULL).returncode
            == 0
        )
    except (OSError, subprocess.TimeoutExpired):
        return False


def version_said(command: Sequence[str], engine: str) -> str:
    """The last word of its last line. Raises UnsupportedOption."""
    words = said_by(command, engine).split()
    if not words:
        raise UnsupportedOption(f"{command[0]} doesn't say which {engine} it is")
    return words[-1]
