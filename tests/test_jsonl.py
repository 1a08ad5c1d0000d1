"""JSON lines survive kills and full disks."""

from __future__ import annotations

from pathlib import Path

import pytest

from forerun.jsonl import Lines, Skipped, lines, made_of, read_lines


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


@pytest.mark.parametrize(
    "content",
    [
        b'\xef\xbb\xbf{"a": 1}\n{"a": 2}\n',
        b'{"a": 1}\r\n{"a": 2}\r\n',
        b'{"a": 1}\n{"a": 2}',
        b'\n  \r\n{"a": 1}\n\t\n{"a": 2}\n \n',
        b'\xef\xbb\xbf\n{"a": 1}\n\xef\xbb\xbf{"a": 2}',
    ],
    ids=["byte order mark", "CRLF", "no last end", "blank lines", "files put together"],
)
def test_forms_of_the_same_lines_are_read_alike(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "some.jsonl"
    file.write_bytes(content)

    assert [value for _, value in read_lines(file)] == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'{"a": 1}\n{"a": "cut', "line 2: not valid JSON .* so it may be cut off"),
        (b'[\n{"a": 1}\n]\n', r"line 1: not valid JSON .*jq -c '\.\[\]'"),
        (b'\n{"a": "\\ud83d"}\n', r"line 2: '\\ud83d' is half of a surrogate pair"),
        (b'{"a": ' + b"[" * 100_000 + b"}\n", "line 1: JSON that can't be read"),
        (b'{"a": ' + b"1" * 5_000 + b"}\n", "line 1: JSON that can't be read"),
        (b'{"a": 1}\n{"a": "\xe4"}\n', "line 2 is no UTF-8"),
        ("{}\n".encode("utf-16"), "line 1 is no UTF-8"),
        ("\u2028\n".encode(), "line 1: not valid JSON"),
    ],
    ids=["cut off", "array", "surrogate", "deep", "long number", "latin-1", "utf-16", "odd blank"],
)
def test_a_line_at_fault_is_named_with_the_reason(tmp_path: Path, content: bytes, reason: str) -> None:
    file = tmp_path / "some.jsonl"
    file.write_bytes(content)

    with pytest.raises(ValueError, match=rf"some\.jsonl.*{reason}"):
        list(read_lines(file))


def test_whole_surrogate_pairs_are_characters(tmp_path: Path) -> None:
    file = tmp_path / "some.jsonl"
    file.write_text('{"a": "\\ud83d\\ude00"}\n')

    assert list(read_lines(file)) == [(1, {"a": "\U0001f600"})]


def test_lines_are_read_one_at_a_time(tmp_path: Path) -> None:
    file = tmp_path / "some.jsonl"
    file.write_text('{"a": 1}\n{oops\n')
    reading = read_lines(file)

    assert next(reading) == (1, {"a": 1})
    with pytest.raises(ValueError, match="line 2"):
        next(reading)


def test_a_line_says_where_it_is_and_what_stands_there(tmp_path: Path) -> None:
    file = tmp_path / "some.jsonl"
    file.write_bytes(b'\n{"a":  1}\r\n{"b": 2}')
    first, last = lines(file)

    assert (first.place, first.text, first.ended) == (f"{file}, line 2", '{"a":  1}', True)
    assert (last.text, last.ended) == ('{"b": 2}', False)


def number_of(entry: dict[str, object]) -> int:
    if not isinstance(entry.get("a"), int):
        raise ValueError("a number is needed")
    return int(str(entry["a"]))


def test_lines_at_fault_are_counted_and_the_first_is_told(tmp_path: Path) -> None:
    file, skipped = tmp_path / "some.jsonl", Skipped()
    file.write_bytes(b'{"a": 1}\n{"a": "x"}\n{oops\n\xff\n{"a": 2}\n')

    assert [number for _, number in made_of(file, number_of, skipped)] == [1, 2]
    assert (skipped.count, skipped.first) == (3, f"{file}, line 2: a number is needed")
    assert skipped.sentence() == f" (3 lines were skipped, the first: {file}, line 2: a number is needed)"
    assert Skipped().sentence() == ""
    with pytest.raises(ValueError, match="line 2: a number is needed"):
        list(made_of(file, number_of))


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "some.jsonl"
    file.write_bytes(b"\xff\n")
    for read in (lambda path: list(read_lines(path)), Lines):
        with pytest.raises(ValueError, match=r"can't read .*some\.jsonl: .* can't decode"):
            read(file)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"can't read .*none\.jsonl"):
        list(read_lines(tmp_path / "none.jsonl"))


def test_writing_goes_on_after_the_last_whole_line(tmp_path: Path) -> None:
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


def test_a_whole_last_line_of_another_writer_stays(tmp_path: Path) -> None:
    file = tmp_path / "some.jsonl"
    file.write_bytes(b'\xef\xbb\xbf{"a": 1}\r\n{"a": 2}')
    with Lines(file) as opened:
        assert opened.known == [{"a": 1}, {"a": 2}]
        opened.write({"a": 3})

    assert [value for _, value in read_lines(file)] == [{"a": 1}, {"a": 2}, {"a": 3}]


def test_a_text_that_is_none_of_ours_is_not_cut_off(tmp_path: Path) -> None:
    file = tmp_path / "some.txt"
    file.write_text("a text without an end")
    with pytest.raises(ValueError, match="line 1: not valid JSON"):
        Lines(file)
    assert file.read_text() == "a text without an end"


def test_what_was_there_comes_with_its_numbers(tmp_path: Path) -> None:
    file = tmp_path / "some.jsonl"
    file.write_text('\n{"a": 1}\n\n{"a": 2}\n')
    with Lines(file) as opened:
        assert (opened.numbers, opened.known) == ([2, 4], [{"a": 1}, {"a": 2}])
