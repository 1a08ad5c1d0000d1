from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from forerun.core.identity import Identity
from forerun.drafters.copying.continuations import Vote
from forerun.drafters.copying.ngram_votes import NgramVotes, open_votes
from forerun.errors import InvalidModelFile, ModelNotFound, UnsupportedOption
from forerun.models.files import known_drafts
from forerun.models.files.ngram_keys import keys_of
from forerun.models.files.ngrams import KIND, NgramFile, write_ngrams

TARGET = Identity("llama", 4, 32, 97, "a" * 16, "b" * 16)


def table() -> NgramFile:
    """After 5 comes 6, most often; after 4, 5 comes 7."""
    rows = sorted([(keys_of([5], 3)[-1], 6, 51), (keys_of([4, 5], 3)[-1], 7, 255)])
    keys, tokens, likely = (torch.tensor(column) for column in zip(*rows, strict=True))
    return NgramFile(TARGET, 3, keys, tokens, likely, 0.5, {"model": "tiny"})


def test_the_longest_context_that_is_known_says_it() -> None:
    votes = NgramVotes(table())
    assert votes.after([1, 5]) == votes.after([5]) == Vote(6, 0.2, 0, 1)
    assert votes.after([9, 4, 5]) == Vote(7, 1.0, 0, 2)


@pytest.mark.parametrize("end", [[], [96], [5, 96]])
def test_of_unknown_ends_it_says_nothing(end: list[int]) -> None:
    assert NgramVotes(table()).after(end) is None


def test_a_name_and_a_directory_open_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_ngrams(table(), tmp_path / "mine")
    monkeypatch.setenv(known_drafts.SWITCH, str(tmp_path))
    for name in ("mine", str(tmp_path / "mine")):
        assert open_votes(name, TARGET).after([5]) == Vote(6, 0.2, 0, 1)


def test_other_weights_may_use_it_and_another_tokenizer_may_not(tmp_path: Path) -> None:
    write_ngrams(table(), tmp_path / "mine")
    assert open_votes(str(tmp_path / "mine"), replace(TARGET, weights="c" * 16)).after([5])
    for other in (replace(TARGET, vocabulary="c" * 16), replace(TARGET, vocab_size=98)):
        with pytest.raises(UnsupportedOption, match="is of another tokenizer"):
            open_votes(str(tmp_path / "mine"), other)


def test_what_is_not_there_or_cut_short_is_told(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match="no n-gram table at"):
        open_votes(str(tmp_path / "mine"), TARGET)
    write_ngrams(table(), tmp_path / "mine")
    file = tmp_path / "mine" / KIND.weights_file
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.raises(InvalidModelFile, match="holds no n-gram table that can be read"):
        open_votes(str(tmp_path / "mine"), TARGET)


@pytest.mark.parametrize(
    ("field", "values", "sentence"),
    [
        ("keys", [5, 5], "keys must ascend"),
        ("keys", [5, 2**32], "keys must be in 0"),
        ("tokens", [1, 97], r"tokens must be in 0\.\.96, got 1\.\.97"),
        ("tokens", [-1, 1], "tokens must be in 0"),
        ("likely", [1, 256], "likely must be in 0"),
        ("keys", [1], "as long as each other"),
    ],
)
def test_values_that_can_not_be_are_refused(field: str, values: list[int], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        replace(table(), **{field: torch.tensor(values)})
