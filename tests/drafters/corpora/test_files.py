from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from forerun.core.identity import Identity
from forerun.drafters.corpora.files import ABOUT, About, build_corpus, open_corpus
from forerun.errors import InvalidModelFile, ModelNotFound, UnsupportedOption

TEXTS = [[1, 2, 3, 4, 5], [], [6, 2, 3, 7]]


def identity(vocabulary: str = "abc", size: int = 50) -> Identity:
    return Identity("llama", 4, 32, size, "0" * 16, vocabulary)


@pytest.fixture
def built(tmp_path: Path) -> Path:
    build_corpus(TEXTS, tmp_path / "corpus", ("abc", 50))
    return tmp_path / "corpus"


def test_a_corpus_is_found_as_it_was_built(built: Path) -> None:
    (shard,) = open_corpus(built, identity())
    assert shard.tokens.tolist() == [1, 2, 3, 4, 5, 50, 6, 2, 3, 7, 50]
    assert [list(match.ids) for match in shard.matches([1, 2, 3])] == [[4, 5]]


def test_it_is_built_and_searched_in_shards(tmp_path: Path) -> None:
    about = build_corpus(TEXTS * 3, tmp_path / "corpus", ("abc", 50), shard_tokens=10)
    assert about == About("abc", 50, (10, 10, 10, 3))
    shards = open_corpus(tmp_path / "corpus", identity())
    assert [len(shard.tokens) for shard in shards] == [10, 10, 10, 3]
    assert sum(shard.tokens.tolist().count(2) for shard in shards) == 6


@pytest.mark.parametrize(("size", "kind"), [(2**16 - 1, np.uint16), (2**16, np.uint32)])
def test_tokens_take_as_few_bytes_as_the_vocabulary_allows(tmp_path: Path, size: int, kind: type) -> None:
    build_corpus([[size - 1, 0]], tmp_path / "corpus", ("", size))
    (shard,) = open_corpus(tmp_path / "corpus", identity("", size))
    assert (shard.tokens.dtype, shard.tokens.tolist()) == (kind, [size - 1, 0, size])
    assert [list(match.ids) for match in shard.matches([size - 1])] == [[0]]


def test_it_is_mapped_and_not_read(built: Path) -> None:
    (shard,) = open_corpus(built, identity())
    assert all(isinstance(array.base, np.memmap) for array in (shard.tokens, shard.order, shard.first))


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


def test_shards_have_a_size(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"shard_tokens must be in 1\.\..*, got 0"):
        build_corpus(TEXTS, tmp_path / "corpus", ("abc", 50), shard_tokens=0)


def test_a_directory_without_a_corpus_is_told_from_one(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"no corpus at .* make one with: forerun corpus build"):
        open_corpus(tmp_path, identity())


@pytest.mark.parametrize("other", [identity("xyz"), identity("abc", 51), identity("", 49)])
def test_a_corpus_of_another_tokenizer_is_refused(built: Path, other: Identity) -> None:
    with pytest.raises(UnsupportedOption, match=r"is of another tokenizer \(vocabulary abc of 50 tokens\)"):
        open_corpus(built, other)


def test_a_model_without_a_tokenizer_takes_what_has_its_vocabularys_size(built: Path) -> None:
    assert len(open_corpus(built, identity(""))) == 1


def cut(file: Path, count: int = 4) -> None:
    file.write_bytes(file.read_bytes()[:-count])


def change(directory: Path, **values: object) -> None:
    about = json.loads((directory / ABOUT).read_text())
    (directory / ABOUT).write_text(json.dumps({**about, **values}))


FAULTS: dict[str, Callable[[Path], object]] = {
    "tokens cut": lambda at: cut(at / "tokens-0000.npy"),
    "order cut": lambda at: cut(at / "order-0000.npy"),
    "only a header": lambda at: cut(at / "first-0000.npy", 52 * 4),
    "an empty file": lambda at: (at / "tokens-0000.npy").write_bytes(b""),
    "no array": lambda at: (at / "order-0000.npy").write_text("hello, this is a text and no array"),
    "a file is missing": lambda at: (at / "first-0000.npy").unlink(),
    "another length": lambda at: np.save(at / "tokens-0000.npy", np.zeros(3, np.uint16)),
    "no whole numbers": lambda at: np.save(at / "tokens-0000.npy", np.zeros(11)),
    "objects": lambda at: np.save(at / "tokens-0000.npy", np.asarray([None] * 11)),
    "other counts": lambda at: np.save(at / "first-0000.npy", np.zeros(52, np.uint32)),
    "no JSON": lambda at: (at / ABOUT).write_text("{"),
    "another format": lambda at: change(at, format="other"),
    "a newer version": lambda at: change(at, version=2),
    "no shard": lambda at: change(at, tokens=[]),
    "an empty shard": lambda at: change(at, tokens=[0]),
    "no sizes": lambda at: change(at, tokens=["many"]),
    "one shard more": lambda at: change(at, tokens=[11, 11]),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_corpus_at_fault_is_one_sentence(built: Path, fault: str) -> None:
    FAULTS[fault](built)
    with pytest.raises(InvalidModelFile, match=r"holds no corpus that can be read: .*; build it again"):
        open_corpus(built, identity())


def test_numbers_at_fault_inside_of_a_file_draft_nothing(built: Path) -> None:
    order = np.load(built / "order-0000.npy")
    np.save(built / "order-0000.npy", np.full_like(order, 2**32 - 1))
    tokens = np.load(built / "tokens-0000.npy")
    np.save(built / "tokens-0000.npy", np.full_like(tokens, 60))
    (shard,) = open_corpus(built, identity())
    assert all(not match.ids for match in shard.matches([1, 2, 3]))
