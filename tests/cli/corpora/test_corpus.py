from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from forerun.cli.corpora import corpus
from forerun.testing import save_tiny

from ..conftest import Ran, check_same_text

Call = Callable[..., Ran]


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    (tmp_path / "a.txt").write_text("hello world, hello world\n" * 20)
    (tmp_path / "b.jsonl").write_text('{"text": "one more text"}\n{"messages": [{"content": "and one"}]}\n')
    return [tmp_path / "a.txt", tmp_path / "b.jsonl"]


def test_a_corpus_is_built_and_drafted_from(forerun: Call, tiny: str, files: list[Path], tmp_path: Path) -> None:
    ran = forerun("corpus", "build", tiny, *files, "-o", tmp_path / "corpus")

    assert ran.status == 0
    assert f"--drafter corpus --path {tmp_path / 'corpus'}" in ran.out
    assert " tokens, " in ran.out
    check_same_text(forerun, tiny, "--drafter", "corpus", "--path", tmp_path / "corpus")


def test_as_json_nothing_else_stands_on_stdout(forerun: Call, tiny: str, files: list[Path], tmp_path: Path) -> None:
    told = json.loads(forerun("corpus", "build", tiny, *files, "--output", tmp_path / "corpus", "--json").out)

    assert told["directory"] == str(tmp_path / "corpus")
    assert told["tokens"] > 20
    assert told["bytes"] == sum(file.stat().st_size for file in (tmp_path / "corpus").iterdir())


def test_every_megabyte_of_many_texts_is_read_once(
    forerun: Call, tiny: str, files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = json.loads(forerun("corpus", "build", tiny, *files, "-o", tmp_path / "whole", "--json").out)
    monkeypatch.setattr(corpus, "MEGABYTE", 10)
    pieces = json.loads(forerun("corpus", "build", tiny, *files, "-o", tmp_path / "pieces", "--json").out)

    assert pieces["tokens"] == whole["tokens"]


def test_a_corpus_of_another_tokenizer_is_refused(forerun: Call, tiny: str, files: list[Path], tmp_path: Path) -> None:
    other = save_tiny(tmp_path / "other", vocab_size=400)
    assert forerun("corpus", "build", other, *files, "-o", tmp_path / "corpus").status == 0
    ran = forerun("generate", tiny, "hello", "--drafter", "corpus", "--path", tmp_path / "corpus")

    assert (ran.status, ran.out) == (2, "")
    assert "is of another tokenizer" in ran.said


def test_a_truncated_corpus_is_refused(forerun: Call, tiny: str, files: list[Path], tmp_path: Path) -> None:
    forerun("corpus", "build", tiny, *files, "-o", tmp_path / "corpus")
    file = tmp_path / "corpus" / "order.bin"
    file.write_bytes(file.read_bytes()[:-9])
    ran = forerun("generate", tiny, "hello", "--drafter", "corpus", "--path", tmp_path / "corpus")

    assert (ran.status, ran.out) == (2, "")
    assert "holds no corpus that can be read" in ran.said
    assert "build it again" in ran.said


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("none.txt", None, "can't read the corpus file"),
        ("empty.txt", "", "the corpus would be empty"),
        ("bad.jsonl", '{"other": 1}', "line 1: an object with text"),
    ],
)
def test_files_that_hold_no_text_are_refused(
    forerun: Call, tiny: str, tmp_path: Path, name: str, content: str | None, sentence: str
) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    ran = forerun("corpus", "build", tiny, tmp_path / name, "-o", tmp_path / "corpus")

    assert (ran.status, ran.out) == (2, "")
    assert sentence in ran.said
    assert not (tmp_path / "corpus").exists()


def test_a_directory_that_is_there_is_refused(forerun: Call, tiny: str, files: list[Path], tmp_path: Path) -> None:
    ran = forerun("corpus", "build", tiny, *files, "-o", tmp_path)

    assert ran.status == 2
    assert "is there already" in ran.said
