"""Reads a checkpoint's tokenizer, with one sentence as the error if it can't be read."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from ...errors import InvalidModelFile, UnsupportedModel, reason_of
from ..files.quiet import quiet

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "vocab.json",
    "vocab.txt",
    "spiece.model",
)
_AS_JSON = ("tokenizer.json", "tokenizer_config.json", "vocab.json", "special_tokens_map.json", "added_tokens.json")
_SENTENCEPIECE = ("tokenizer.model", "spiece.model")


def read_tokenizer(directory: Path, trust_remote_code: bool = False) -> Any | None:
    """The tokenizer in a directory, None where it holds none. Raises InvalidModelFile, UnsupportedModel."""
    held = [name for name in TOKENIZER_FILES if (directory / name).is_file()]
    if not held:
        return None
    try:
        with quiet():
            tokenizer = AutoTokenizer.from_pretrained(
                directory, trust_remote_code=trust_remote_code, local_files_only=True
            )
    except MemoryError:
        raise
    # tokenizers raises a plain Exception on a file that it can't read
    except Exception as error:
        raise _unreadable(directory, held, error) from error
    if len(tokenizer.get_vocab()) <= len(tokenizer.get_added_vocab()):
        raise _without_vocabulary(directory, held)
    return tokenizer


def check_json(file: Path) -> None:
    """Raise InvalidModelFile, with the place, where a file that is there holds no JSON."""
    if file.is_file():
        try:
            json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise InvalidModelFile(f"{file} is corrupt or truncated, download it again ({error})") from error


def _unreadable(directory: Path, held: list[str], error: Exception) -> UnsupportedModel | InvalidModelFile:
    for name in _AS_JSON:
        try:
            check_json(directory / name)
        except InvalidModelFile as corrupt:
            return corrupt
    if held == ["tokenizer_config.json"]:
        return _without_vocabulary(directory, held)
    pieces = [name for name in _SENTENCEPIECE if name in held and _is_sentencepiece(directory / name)]
    if pieces and "tokenizer.json" not in held and find_spec("sentencepiece") is None:
        return UnsupportedModel(
            f"{directory / pieces[0]} needs the package sentencepiece to be read: pip install sentencepiece"
        )
    return UnsupportedModel(f"the tokenizer in {directory} can't be read: {reason_of(error)}")


def _without_vocabulary(directory: Path, held: list[str]) -> UnsupportedModel:
    return UnsupportedModel(
        f"{directory} holds {', '.join(held)} and no vocabulary; put tokenizer.json (or the vocabulary's own files) "
        "beside it, or give a tokenizer"
    )


def _is_sentencepiece(file: Path) -> bool:
    """A protocol buffer whose first field is a piece; tiktoken's files of the same name are text."""
    with file.open("rb") as opened:
        return opened.read(1) == b"\n"
