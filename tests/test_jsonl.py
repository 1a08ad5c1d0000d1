"""JSON lines survive kills and full disks."""

from __future__ import annotations

from pathlib import Path

import pytest

from forerun.jsonl import Lines, read_lines


def test_lines_come_with_their_numbers_and_blank_ones_are_left_out(tmp_path: Path) -> None:
    file = tmp_path / "some.jsonl"
    file.write_text('{"a": 1}\n\n{"b": 2}\n')

    assert list(read_lines(file)) == [(1, {"a": 1}), (3, {"b": 2})]


@pytest.mark.parametrize(
    ("line", "reason"), [("{oops", "not valid JSON"), ("[1]", "an object is needed"), ("7", "an object is needed")]
)
def test_a_line_that_is_no_object_is_named_by_its_number(tmp_path: Path, line: str, reason: str) -> None:
    file = tmp_path / "some.jsonl"
    file.write_text('{"a": 1}\n' + line + "\n")

    with pytest.raises(ValueError, match=rf"some.jsonl, line 2: {reason}"):
        list(read_lines(file))


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"can't read .*none\.jsonl"):
        list(read_lines(tmp_path / "none.jsonl"))


def test_writing_goes_on_behind_the_last_whole_line(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "some.jsonl"
    with Lines(file) as lines:
        assert lines.known == []
        lines.write({"a": "ä"})
        lines.write({"a": 2})
    with file.open("a") as opened:
        opened.write('{"a": 3, "cut off')

    with Lines(file) as lines:
        assert lines.known == [{"a": "ä"}, {"a": 2}]
        lines.write({"a": 4})

    assert [value for _, value in read_lines(file)] == [{"a": "ä"}, {"a": 2}, {"a": 4}]


class _Full:
    """A file that takes half a line."""

    def __init__(self, file: object) -> None:
        self._file = file

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)

    def write(self, data: bytes) -> int:
        self._file.write(data[: len(data) // 2])  # type: ignore[attr-defined]
        self._file.flush()  # type: ignore[attr-defined]
        raise OSError(28, "No space left on device")


def test_a_line_that_does_not_fit_on_the_disk_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "some.jsonl"
    with Lines(file) as lines:
        lines.write({"a": 1})
        monkeypatch.setattr(lines, "_file", _Full(lines._file))
        with pytest.raises(ValueError, match="No space left on device; what was written before is whole"):
            lines.write({"a": 2})

    assert [value for _, value in read_lines(file)] == [{"a": 1}]


def test_a_file_that_is_none_of_ours_is_let_go_of_when_it_is_refused(tmp_path: Path) -> None:
    """An open file would be warned of."""
    file = tmp_path / "some.jsonl"
    file.write_text('{"a": 1}\n[2]\n')
    with pytest.raises(ValueError, match="line 2: an object is needed"):
        Lines(file)
    assert file.read_text() == '{"a": 1}\n[2]\n'
