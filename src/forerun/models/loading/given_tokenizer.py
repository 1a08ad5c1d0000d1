"""A tokenizer in the forms in which callers have one: loaded, in files, inside a processor, or bare from tokenizers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import torch
from tokenizers import Tokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from ...errors import ModelNotFound, UnsupportedOption, reason_of
from ..files.locate import BUNDLED, locate
from ..files.quiet import quiet
from ..gguf.convert import converted
from .tokenizer_files import TOKENIZER_FILES, read_tokenizer

NEEDED = ("__call__", "decode", "get_vocab")


class TokenizerLike(Protocol):
    """A tokenizer of transformers, or of the library tokenizers."""

    def get_vocab(self) -> dict[str, int]: ...

    @property
    def decode(self) -> Callable[..., object]: ...


class TokenizerHolder(Protocol):
    """A processor that holds a tokenizer."""

    @property
    def tokenizer(self) -> TokenizerLike: ...


TokenizerSource = str | Path | TokenizerLike | TokenizerHolder


def as_tokenizer(given: TokenizerSource | None, trust_remote_code: bool = False) -> Any | None:
    """A tokenizer as transformers has them, None for None.

    given may also be what a model can be loaded from (a directory, a GGUF file, a bundled or a hub name), a tokenizer.json,
    a Tokenizer of the library tokenizers, or a processor that holds a tokenizer. Raises ModelNotFound, UnsupportedOption.
    """
    if given is None:
        return None
    if isinstance(given, str | Path):
        return _read(given, trust_remote_code)
    if isinstance(given, Tokenizer):
        return PreTrainedTokenizerFast(tokenizer_object=given)
    missing = _missing(given)
    inside = getattr(given, "tokenizer", None)
    if not missing or (inside is not None and not _missing(inside)):
        return inside if missing else given
    raise UnsupportedOption(
        f"a tokenizer is one of transformers or of tokenizers, a path or a name; {type(given).__name__} has no {missing[0]}"
    )


def _missing(tokenizer: Any) -> list[str]:
    return [name for name in NEEDED if not callable(getattr(tokenizer, name, None))]


def _read(given: str | Path, trust_remote_code: bool) -> Any:
    path = Path(given).expanduser()
    directory = _directory(given, path)
    if directory is not None:
        tokenizer = read_tokenizer(directory, trust_remote_code)
        if tokenizer is None:
            raise ModelNotFound(f"{given} holds no tokenizer: it has none of {', '.join(TOKENIZER_FILES)}")
        return tokenizer
    try:
        with quiet():
            if path.is_file():
                return PreTrainedTokenizerFast(tokenizer_file=str(path))
            return AutoTokenizer.from_pretrained(str(given), trust_remote_code=trust_remote_code)
    except MemoryError:
        raise
    except Exception as error:  # the formats are many, and each reader raises its own
        raise UnsupportedOption(f"no tokenizer can be read from {given}: {reason_of(error)}") from error


def _directory(given: str | Path, path: Path) -> Path | None:
    """The directory that holds the tokenizer; None for a single file and for a hub name, whose weights it doesn't need."""
    file = locate(given) if given in BUNDLED else path
    if file.is_file():
        return None if file.suffix == ".json" else converted(file, torch.bfloat16)
    if not file.exists() and (isinstance(given, Path) or path.is_absolute() or given.startswith((".", "~"))):
        raise ModelNotFound(f"no tokenizer at {given}: there is no such file or directory")
    return file if file.exists() else None
