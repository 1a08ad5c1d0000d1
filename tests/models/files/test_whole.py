"""A file of text is written as a whole, or stays as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from forerun.models.files.whole import write_whole


def test_the_text_stands_in_the_file_and_nothing_beside_it(tmp_path: Path) -> None:
    write_whole(tmp_path / "deep" / "a.json", "über\n")

    assert (tmp_path / "deep" / "a.json").read_bytes() == "über\n".encode()
    assert [one.name for one in (tmp_path / "deep").iterdir()] == ["a.json"]


def test_a_file_that_is_there_is_replaced(tmp_path: Path) -> None:
    for text in ("a longer text", "short"):
        write_whole(tmp_path / "a.json", text)

    assert (tmp_path / "a.json").read_text() == "short"


def test_where_writing_fails_the_file_stays_as_it_was(tmp_path: Path) -> None:
    write_whole(tmp_path / "a.json", "first")
    with pytest.raises(UnicodeEncodeError):
        write_whole(tmp_path / "a.json", "half a pair: \ud800")

    assert (tmp_path / "a.json").read_text() == "first"
    assert [one.name for one in tmp_path.iterdir()] == ["a.json"]


def test_a_folder_that_can_not_be_made_is_an_os_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        write_whole(tmp_path / "file" / "a.json", "text")
