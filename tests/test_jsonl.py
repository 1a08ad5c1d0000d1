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


@pytest.mark.parametrize("odd", ["\x85", "\u2028", "\u2029", "\x0c", "\r", "\n", "\x1e"])
def test_text_keeps_what_other_readers_take_for_the_end_of_a_line(tmp_path: Path, odd: str) -> None:
    file = tmp_path / "some.jsonl"
    with Lines(file) as lines:
        lines.write({"a": f"one{odd}two"})
        lines.write({"a": 2})

    assert list(read_lines(file)) == [(1, {"a": f"one{odd}two"}), (2, {"a": 2})]
    assert len(file.read_text().splitlines()) == 2


def test_lines_of_others_may_hold_such_characters_as_they_are(tmp_path: Path) -> None:
    file = tmp_path / "some.jsonl"
    file.write_bytes('{"a": "one\u2028two"}\r\n{"a": 2}\r\n'.encode())

    assert list(read_lines(file)) == [(1, {"a": "one\u2028two"}), (2, {"a": 2})]


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "some.jsonl"
    file.write_bytes(b"\xff\n")
    for read in (lambda path: list(read_lines(path)), Lines):
        with pytest.raises(ValueError, match=r"can't read .*some\.jsonl: .* can't decode"):
            read(file)


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


def test_opening_reads_the_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "some.jsonl"
    with Lines(file) as lines:
        lines.write({"a": 1})

    def again(*given: object) -> None:
        pytest.fail("the file is read a second time")

    monkeypatch.setattr(Path, "read_text", again)
    monkeypatch.setattr(Path, "read_bytes", again)
    with Lines(file) as lines:
        assert lines.known == [{"a": 1}]


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
