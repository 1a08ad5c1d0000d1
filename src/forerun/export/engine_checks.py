"""What engines demand of a draft beside its target, tried on what was written, before anyone starts an engine."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from ..errors import UnsupportedOption
from ..models.files.quiet import quiet
from ..models.gguf.header import read_header
from ..models.gguf.tokenizer import PREFIX
from ..models.loading.load import Module

IDS = ("bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id")
# llama.cpp compares these, and the texts of tokens from FIRST on; the vocabularies' sizes may differ by MOST
KEYS = ("model", "bos_token_id", "add_bos_token", "eos_token_id", "add_eos_token")
FIRST, MOST = 5, 128


def check_directory(directory: Path, target: Module) -> list[str]:
    """What vLLM's draft_model and transformers' assistant_model ask for, each line one thing that holds.

    Raises UnsupportedOption with the first that doesn't.
    """
    config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    rows = int(target.model.config.get_text_config().vocab_size)
    if config["vocab_size"] != rows:
        raise _refused(f"its vocabulary has {config['vocab_size']} tokens, the target's {rows}")
    held = [f"vocabulary of {rows}, as the target's"]
    if target.tokenizer is None:
        return held
    with quiet():
        tokenizer = AutoTokenizer.from_pretrained(directory)
    if tokenizer.get_vocab() != target.tokenizer.get_vocab():
        raise _refused("its tokenizer has other tokens than the target's")
    for name in IDS:
        mine, its = getattr(tokenizer, name), getattr(target.tokenizer, name)
        if mine != its:
            raise _refused(f"its {name} is {mine}, the target's {its}")
    if tokenizer.chat_template != target.tokenizer.chat_template:
        raise _refused("its chat template is another than the target's")
    return [*held, "the target's tokens, special tokens and chat template"]


def check_tokenizer_file(file: Path, target: Module) -> None:
    """Raises UnsupportedOption unless a GGUF file's tokens are those of the target."""
    tokens = read_header(file).keys.get(f"{PREFIX}tokens", ())
    rows = int(target.model.config.get_text_config().vocab_size)
    if len(tokens) != rows:
        raise _refused(
            f"{file.name} has {len(tokens)} tokens and {target.name} {rows}; name the GGUF file of that model"
        )
    for token, number in (target.vocabulary or {}).items():
        # a tokenizer may know more tokens than the model has rows
        if number < rows and tokens[number] != token:
            raise _refused(
                f"token {number} is {tokens[number]!r} in {file.name} and {token!r} in {target.name}; name the GGUF file of "
                "that model"
            )


def check_gguf(draft: Path, target: Path) -> list[str]:
    """What llama.cpp asks for, of a draft's file beside its target's. Raises UnsupportedOption with what doesn't hold."""
    mine, its = (dict(_tokenizer(file)) for file in (draft, target))
    for key in KEYS:
        if mine.get(key) != its.get(key):
            raise _refused(f"its {key} is {mine.get(key)!r}, the target's {its.get(key)!r}")
    own, other = mine.get("tokens", ()), its.get("tokens", ())
    if abs(len(own) - len(other)) > MOST:
        raise _refused(f"its vocabulary has {len(own)} tokens, the target's {len(other)}")
    for number, (left, right) in enumerate(zip(own, other, strict=False)):
        if number >= FIRST and left != right:
            raise _refused(f"its token {number} is {left!r}, the target's {right!r}")
    return [f"vocabulary of {len(own)}, as the target's", "the target's tokens, special tokens and chat template"]


def _tokenizer(file: Path) -> Iterator[tuple[str, Any]]:
    keys: Mapping[str, Any] = read_header(file).keys
    return ((key.removeprefix(PREFIX), value) for key, value in keys.items() if key.startswith(PREFIX))


def _refused(reason: str) -> UnsupportedOption:
    return UnsupportedOption(f"no engine would take this draft: {reason}")
