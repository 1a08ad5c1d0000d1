from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from forerun.core.identity import Identity
from forerun.errors import InvalidModelFile, ModelNotFound
from forerun.models.files.ngram_keys import keys_of
from forerun.models.files.ngrams import KIND, NgramFile, is_table, read_ngrams, write_ngrams

TARGET = Identity("llama", 4, 32, 97, "a" * 16, "b" * 16)


def table(**given: Any) -> NgramFile:
    values = {"keys": torch.tensor([3, 2**32 - 1]), "tokens": torch.tensor([96, 0]), "likely": torch.tensor([255, 0])}
    return NgramFile(TARGET, 4, **{**values, **given}, right=0.5, trained={"model": "tiny"})


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write_ngrams(table(), tmp_path / "own")
    read = read_ngrams(tmp_path / "own")
    assert is_table(tmp_path / "own")
    assert (read.target, read.longest, read.right, read.target_name) == (TARGET, 4, 0.5, "tiny")
    for name in ("keys", "tokens", "likely"):
        assert getattr(read, name).tolist() == getattr(table(), name).tolist()


def test_tokens_of_large_vocabularies_are_kept(tmp_path: Path) -> None:
    large = NgramFile(
        replace(TARGET, vocab_size=200_000), 1, torch.tensor([1]), torch.tensor([199_999]), torch.tensor([9])
    )
    write_ngrams(large, tmp_path / "large")
    assert read_ngrams(tmp_path / "large").tokens.tolist() == [199_999]


@pytest.mark.parametrize(
    "given",
    [
        {"keys": torch.tensor([4, 3])},
        {"keys": torch.tensor([3, 3])},
        {"keys": torch.tensor([-1, 3])},
        {"keys": torch.tensor([3, 2**32])},
        {"tokens": torch.tensor([97, 0])},
        {"tokens": torch.tensor([-1, 0])},
        {"likely": torch.tensor([256, 0])},
        {"likely": torch.tensor([1])},
    ],
)
def test_values_that_no_table_can_have_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"keys|tokens|likely"):
        table(**given)


def test_an_empty_table_is_refused() -> None:
    none = torch.tensor([], dtype=torch.long)
    with pytest.raises(ValueError, match="keys"):
        table(keys=none, tokens=none, likely=none)


@pytest.mark.parametrize("longest", [0, 9])
def test_a_context_has_one_to_eight_tokens(longest: int) -> None:
    with pytest.raises(ValueError, match=f"1..8 tokens, got {longest}"):
        replace(table(), longest=longest)


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    write_ngrams(table(), tmp_path / "own")
    file = tmp_path / "own" / KIND.weights_file
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.raises(InvalidModelFile, match="holds no n-gram table that can be read"):
        read_ngrams(tmp_path / "own")


def test_a_folder_without_one_is_named(tmp_path: Path) -> None:
    assert not is_table(tmp_path)
    with pytest.raises(ModelNotFound, match="no n-gram table at"):
        read_ngrams(tmp_path)


def test_a_folder_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is there already"):
        write_ngrams(table(), tmp_path)


def test_keys_depend_on_tokens_and_their_order_and_on_no_more_than_the_longest() -> None:
    assert keys_of([1, 2, 3], 2) == keys_of([9, 2, 3], 2)
    assert keys_of([1, 2], 2)[1] != keys_of([2, 1], 2)[1]
    assert keys_of([0, 0], 2)[0] != keys_of([0, 0], 2)[1]
    assert keys_of([], 4) == []
    many = {keys_of([first, second], 2)[1] for first in range(200) for second in range(200)}
    assert len(many) > 39_990
    assert all(0 <= key < 2**32 for key in many)
