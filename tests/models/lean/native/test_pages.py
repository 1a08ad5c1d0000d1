"""How much memory lies on large pages, by what the system says."""

from __future__ import annotations

from pathlib import Path

import pytest

from forerun.models.lean.native.pages import large_bytes, setting

MAPS = """\
7f00c9e00000-7f00cb800000 rw-p 00000000 00:00 0
Size:              26624 kB
AnonHugePages:     24576 kB
ShmemPmdMapped:        0 kB
FilePmdMapped:         0 kB
VmFlags: rd wr mr mw me ac hg
7f00d0000000-7f00d5b00000 rw-p 00000000 fe:00 1835 /home/a b/w.safetensors
AnonHugePages:      2048 kB
FilePmdMapped:     90112 kB
7f00e0000000-7f00e5b00000 rw-p 00000000 00:00 0    [heap]
AnonHugePages:      4096 kB
7f00f0000000-7f00f5b00000 rw-p 00000000 fe:00 1836 /home/other
FilePmdMapped:      8192 kB
"""


@pytest.fixture
def maps(tmp_path: Path) -> Path:
    (tmp_path / "smaps").write_text(MAPS)
    return tmp_path / "smaps"


def test_memory_without_a_file_counts_alone(maps: Path) -> None:
    assert large_bytes(None, maps) == (24576 + 4096) << 10


def test_a_files_own_pages_count_alone(maps: Path) -> None:
    assert large_bytes(Path("/home/a b/w.safetensors"), maps) == (2048 + 90112) << 10
    assert large_bytes(Path("/home/nothing"), maps) == 0


def test_a_system_that_does_not_tell(tmp_path: Path) -> None:
    assert large_bytes(None, tmp_path / "none") is None
    assert setting(tmp_path / "none") == ""


def test_the_setting_is_the_one_in_brackets(tmp_path: Path) -> None:
    (tmp_path / "enabled").write_text("always [madvise] never\n")
    assert setting(tmp_path / "enabled") == "madvise"


def test_this_system_can_be_read() -> None:
    if not Path("/proc/self/smaps").exists():
        pytest.skip("not Linux")
    assert (large_bytes() or 0) >= 0
    assert setting() in ("", "always", "madvise", "never")
