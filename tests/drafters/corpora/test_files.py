from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from forerun.core.identity import Identity
from forerun.drafters.corpora import files
from forerun.drafters.corpora.files import ABOUT, FIRST, ORDER, TOKENS, About, build_corpus, open_corpus
from forerun.drafters.corpora.ordering import LONGEST
from forerun.errors import InvalidModelFile, ModelNotFound, UnsupportedOption

TEXTS = [[1, 2, 3, 4, 5], [], [6, 2, 3, 7]]


def identity(vocabulary: str = "abc", size: int = 50) -> Identity:
    return Identity("llama", 4, 32, size, "0" * 16, vocabulary)


@pytest.fixture
def built(tmp_path: Path) -> Path:
    build_corpus(TEXTS, tmp_path / "corpus", ("abc", 50))
    return tmp_path / "corpus"


def test_a_corpus_is_found_as_it_was_built(built: Path) -> None:
    places = open_corpus(built, identity())
    assert np.fromfile(built / TOKENS, "<u2").tolist() == [1, 2, 3, 4, 5, 50, 6, 2, 3, 7, 50]
    assert len(places) == 11
    assert [list(match.ids) for match in places.matches([1, 2, 3])] == [[4, 5]]


@pytest.mark.parametrize("at_once", [1, 2, 10])
def test_it_is_the_same_however_few_places_are_sorted_at_once(tmp_path: Path, at_once: int) -> None:
    about = build_corpus(TEXTS * 3, tmp_path / "whole", ("abc", 50))
    assert about == About("abc", 50, 33)
    assert build_corpus(TEXTS * 3, tmp_path / "pieces", ("abc", 50), sorted_at_once=at_once) == about
    tokens = np.fromfile(tmp_path / "whole" / TOKENS, "<u2").tolist()
    endings = []
    for name in ("whole", "pieces"):
        order = np.fromfile(tmp_path / name / ORDER, "<u4").tolist()
        assert sorted(order) == list(range(33))
        endings.append([tokens[max(place - LONGEST + 1, 0) : place + 1][::-1] for place in order])
    assert endings[0] == endings[1]


@pytest.mark.parametrize(("size", "width"), [(2**16 - 2, 2), (2**16 - 1, 4), (2**16, 4)])
def test_tokens_take_as_few_bytes_as_the_vocabulary_allows(tmp_path: Path, size: int, width: int) -> None:
    build_corpus([[size - 1, 0]], tmp_path / "corpus", ("", size))
    places = open_corpus(tmp_path / "corpus", identity("", size))
    assert np.fromfile(tmp_path / "corpus" / TOKENS, f"<u{width}").tolist() == [size - 1, 0, size]
    assert [list(match.ids) for match in places.matches([size - 1])] == [[0]]


def test_more_tokens_than_places_have_numbers_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_TOKENS", 10)
    with pytest.raises(ValueError, match="a corpus holds at most 10 tokens, and its files have more; give fewer"):
        build_corpus(TEXTS, tmp_path / "corpus", ("abc", 50))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("texts", [[], [[]]])
def test_a_corpus_without_a_token_is_not_built(tmp_path: Path, texts: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="the corpus would be empty"):
        build_corpus(texts, tmp_path / "corpus", ("abc", 50))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("token", [-1, 50])
def test_tokens_of_no_vocabulary_are_refused(tmp_path: Path, token: int) -> None:
    with pytest.raises(ValueError, match=rf"token ids must be in 0\.\.49, got {token}"):
        build_corpus([[1, token]], tmp_path / "corpus", ("abc", 50))
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_there_is_left_alone(built: Path) -> None:
    with pytest.raises(ValueError, match="is there already"):
        build_corpus(TEXTS, built, ("abc", 50))


def test_no_place_at_once_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"sorted_at_once must be at least 1 place, got 0"):
        build_corpus(TEXTS, tmp_path / "corpus", ("abc", 50), sorted_at_once=0)


def test_a_directory_without_a_corpus_is_told_from_one(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"no corpus at .* make one with: forerun corpus build"):
        open_corpus(tmp_path, identity())


@pytest.mark.parametrize("other", [identity("xyz"), identity("abc", 51), identity("", 49)])
def test_a_corpus_of_another_tokenizer_is_refused(built: Path, other: Identity) -> None:
    with pytest.raises(UnsupportedOption, match=r"is of another tokenizer \(vocabulary abc of 50 tokens\)"):
        open_corpus(built, other)


def test_a_model_without_a_tokenizer_takes_what_has_its_vocabularys_size(built: Path) -> None:
    assert len(open_corpus(built, identity(""))) == 11


def cut(file: Path, count: int = 4) -> None:
    file.write_bytes(file.read_bytes()[:-count])


def change(directory: Path, **values: object) -> None:
    about = json.loads((directory / ABOUT).read_text())
    (directory / ABOUT).write_text(json.dumps({**about, **values}))


FAULTS: dict[str, Callable[[Path], object]] = {
    "tokens cut": lambda at: cut(at / TOKENS),
    "order cut": lambda at: cut(at / ORDER),
    "first cut": lambda at: cut(at / FIRST),
    "an empty file": lambda at: (at / TOKENS).write_bytes(b""),
    "a text": lambda at: (at / ORDER).write_text("hello, this is a text and no order"),
    "a file is missing": lambda at: (at / FIRST).unlink(),
    "a token more": lambda at: (at / TOKENS).write_bytes((at / TOKENS).read_bytes() + b"ab"),
    "other counts": lambda at: (at / FIRST).write_bytes(bytes(52 * 4)),
    "no JSON": lambda at: (at / ABOUT).write_text("{"),
    "another format": lambda at: change(at, format="other"),
    "a newer version": lambda at: change(at, version=3),
    "the first version": lambda at: change(at, version=1, tokens=[11]),
    "no token": lambda at: change(at, tokens=0),
    "no number": lambda at: change(at, tokens="many"),
    "several numbers": lambda at: change(at, tokens=[11, 11]),
    "another number": lambda at: change(at, tokens=12),
    "no number is told": lambda at: change(at, tokens=None),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_corpus_at_fault_is_one_sentence(built: Path, fault: str) -> None:
    FAULTS[fault](built)
    with pytest.raises(InvalidModelFile, match=r"holds no corpus that can be read: .*; build it again"):
        open_corpus(built, identity())


def test_numbers_at_fault_inside_of_a_file_draft_nothing(built: Path) -> None:
    np.full(11, 60, "<u2").tofile(built / TOKENS)
    assert all(not match.ids for match in open_corpus(built, identity()).matches([1, 2, 3]))
    np.full(11, 2**32 - 1, "<u4").tofile(built / ORDER)
    assert all(not match.ids for match in open_corpus(built, identity()).matches([1, 2, 3]))
