"""A checkpoint's tokenizer, and in one sentence why it can't be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from forerun.errors import InvalidModelFile, UnsupportedModel
from forerun.models.loading import tokenizer_files as module
from forerun.models.loading.load import open_model
from forerun.models.loading.tokenizer_files import check_json, read_tokenizer
from forerun.testing import save_tiny, tiny_tokenizer

PIECES = b"\n\x0e\n\x05<unk>\x15\x00\x00\x00\x00\x18\x02"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return save_tiny(tmp_path / "tiny")


def test_a_tokenizer_is_read(directory: Path) -> None:
    assert read_tokenizer(directory).decode(read_tokenizer(directory).encode("hé")) == "hé"


def test_a_directory_without_one_has_none(tmp_path: Path) -> None:
    assert read_tokenizer(tmp_path) is None


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_a_truncated_file_is_named_with_the_place(directory: Path, name: str, share: float) -> None:
    file = directory / name
    whole = file.read_bytes()
    file.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(
        InvalidModelFile, match=rf"{name} is corrupt or truncated, download it again \(.*line "
    ) as caught:
        open_model(directory)
    assert "\n" not in str(caught.value)


def test_a_file_of_another_form_is_one_sentence(directory: Path) -> None:
    (directory / "tokenizer.json").write_text('{"version": "1.0", "model": {"type": "Wonder"}}')
    with pytest.raises(UnsupportedModel, match=r"the tokenizer in .* can't be read: ") as caught:
        open_model(directory)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("alone", [True, False])
def test_sentencepiece_is_asked_for_where_it_is_needed(directory: Path, monkeypatch, alone: bool) -> None:
    (directory / "tokenizer.json").unlink()
    if alone:
        (directory / "tokenizer_config.json").unlink()
    (directory / "tokenizer.model").write_bytes(PIECES)
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(
        UnsupportedModel, match=r"tokenizer\.model needs the package sentencepiece .*: pip install sentencepiece"
    ):
        open_model(directory)


def test_a_configuration_without_a_vocabulary_is_no_tokenizer(directory: Path) -> None:
    (directory / "tokenizer.json").unlink()
    with pytest.raises(UnsupportedModel, match=r"holds tokenizer_config\.json and no vocabulary; put tokenizer\.json"):
        open_model(directory)
    assert open_model(directory, tokenizer=tiny_tokenizer()).tokenizer is not None


@pytest.mark.parametrize("kind", ["LlamaTokenizer", "GPT2Tokenizer", "Qwen2Tokenizer", "GemmaTokenizer"])
def test_a_vocabulary_that_a_class_makes_up_is_none(directory: Path, kind: str) -> None:
    (directory / "tokenizer.json").unlink()
    (directory / "tokenizer_config.json").write_text(f'{{"tokenizer_class": "{kind}"}}')
    with pytest.raises(UnsupportedModel, match=r"holds tokenizer_config\.json and no vocabulary"):
        open_model(directory)


def test_files_that_are_not_there_are_no_json_errors(tmp_path: Path) -> None:
    check_json(tmp_path / "none.json")
    (tmp_path / "good.json").write_text("{}")
    check_json(tmp_path / "good.json")
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidModelFile, match=r"bytes\.json is corrupt or truncated"):
        check_json(tmp_path / "bytes.json")
