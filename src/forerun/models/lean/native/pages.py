"""How much of this process's memory lies on large pages: weights on small ones take longer to read."""

from __future__ import annotations

from pathlib import Path

SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")
MAPS = Path("/proc/self/smaps")
LARGE = ("AnonHugePages", "ShmemPmdMapped", "FilePmdMapped")


def setting(file: Path = SETTING) -> str:
    """Which memory the system puts on large pages: always, madvise (asked for, as forerun does), never; "" if untold."""
    try:
        told = file.read_text(encoding="utf-8")
    except OSError:
        return ""
    return told.partition("[")[2].partition("]")[0]


def large_bytes(mapped: Path | None = None, maps: Path = MAPS) -> int | None:
    """Bytes on large pages: of a mapped file, else of memory that belongs to no file. None where that isn't told."""
    try:
        lines = maps.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    found, own = 0, False
    for line in lines:
        name, *values = line.split(maxsplit=5)
        if not name.endswith(":"):
            path = values[4] if len(values) > 4 else ""
            own = path == str(mapped) if mapped else not path.startswith("/")
        elif own and name[:-1] in LARGE:
            found += int(values[0]) << 10
    return found
