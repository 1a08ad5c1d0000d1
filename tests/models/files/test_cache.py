"""A cache that can't be written costs time and nothing else."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError

from forerun.models.files.cache import cache_folder, is_kept, tell_unkept
from forerun.models.gguf import convert as gguf
from forerun.models.gguf.convert import converted

from ..gguf.tiny_gguf import write_gguf


def no_folder(tmp_path: Path) -> Path:
    """A path that not even root can make: its parent is a file."""
    (tmp_path / "file").write_text("")
    return tmp_path / "file" / "cache"


def test_a_folder_that_can_be_written_is_made_and_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cache_folder(tmp_path / "a" / "b") == tmp_path / "a" / "b"
    assert list((tmp_path / "a" / "b").iterdir()) == []
    assert capsys.readouterr().err == ""


def test_another_one_takes_the_place_of_one_that_cant(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = no_folder(tmp_path)
    instead = cache_folder(folder)

    assert instead.is_dir()
    assert instead != folder
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"the cache {folder} can't be written (Not a directory)" in said
    assert "FORERUN_CACHE" in said


def test_a_folder_that_is_there_and_read_only_counts_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*_: Any, **__: Any) -> Any:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("tempfile.TemporaryFile", refused)
    assert cache_folder(tmp_path) != tmp_path
    assert "(Read-only file system)" in capsys.readouterr().err


def test_the_reason_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tell_unkept(tmp_path, OSError("no reason"))

    assert "can't be written (no reason)" in capsys.readouterr().err


def test_a_gguf_file_is_converted_without_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORERUN_CACHE", str(no_folder(tmp_path)))
    directory = converted(write_gguf(tmp_path / "tiny.gguf"), torch.float32)

    assert (directory / "config.json").is_file()
    assert "can't be written (Not a directory)" in capsys.readouterr().err


def test_a_cache_that_may_not_be_searched_holds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: Path) -> bool:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    assert is_kept(tmp_path)
    monkeypatch.setattr(Path, "is_dir", refused)
    assert not is_kept(tmp_path)


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left"), SafetensorError("I/O error: No space left")])
def test_a_full_disk_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def full(*_: Any) -> None:
        raise error

    monkeypatch.setenv("FORERUN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(gguf, "_convert", full)
    with pytest.raises(ValueError, match=r"can't write the converted tiny\.gguf to .*No space left.*; free some space"):
        converted(write_gguf(tmp_path / "tiny.gguf"), torch.float32)

    assert list((tmp_path / "cache" / "models").iterdir()) == []
