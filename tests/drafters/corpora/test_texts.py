from __future__ import annotations

from pathlib import Path

import pytest

from forerun.drafters.corpora import texts
from forerun.drafters.corpora.texts import texts_of


def read(path: Path, content: str | bytes) -> list[str]:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return list(texts_of(path))


def test_a_text_file_is_read_as_it_is(tmp_path: Path) -> None:
    assert read(tmp_path / "a.txt", "one\n\ntwo ä") == ["one\n\ntwo ä"]
    assert read(tmp_path / "a.py", "\ufeffx = 1\n") == ["x = 1\n"]
    assert read(tmp_path / "empty.txt", "") == []


def test_a_large_one_comes_in_pieces_of_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "PIECE", 10)
    found = read(tmp_path / "a.txt", "0123456\n" * 9)
    assert "".join(found) == "0123456\n" * 9
    assert len(found) > 2
    assert all(piece.endswith("\n") for piece in found)


def test_json_lines_give_their_texts(tmp_path: Path) -> None:
    lines = [
        '{"text": "one"}',
        "",
        '{"turns": ["two", "three"], "id": 4}',
        '{"messages": [{"role": "user", "content": "four"}, {"role": "assistant", "content": "five"}]}',
    ]
    assert read(tmp_path / "a.jsonl", "\n".join(lines)) == ["one", "two", "three", "four", "five"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"text": "one"}\n{"other": 1}', r"a\.jsonl, line 2: an object with text, messages .* is needed, got other"),
        ("{}", "got an empty one"),
        ('{"text": 3}', "must hold texts"),
        ('{"messages": [{"role": "user"}]}', "must hold texts"),
        ('{"messages": ["hello", 3]}', "must hold texts"),
        ('{"turns": "hello"}', "an object with text"),
        ("[1]", "an object is needed"),
        ("{", "not valid JSON"),
        (b"\xff\xfe", "is no UTF-8"),
    ],
)
def test_lines_that_hold_no_text_are_refused_by_number(tmp_path: Path, content: str | bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read(tmp_path / "a.jsonl", content)


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"a\.txt: it is no UTF-8 text"):
        read(tmp_path / "a.txt", b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="can't read the corpus file"):
        list(texts_of(tmp_path))
    with pytest.raises(ValueError, match="can't read the corpus file"):
        list(texts_of(tmp_path / "none.txt"))
