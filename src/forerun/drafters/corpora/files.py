"""A corpus on disk: a directory of arrays that are mapped into memory, and a JSON file that says what they are.

It is built shard by shard, so memory is bounded for any amount of text. The tokens belong to one tokenizer, whose
fingerprint is kept and compared.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ...core.identity import Identity
from ...errors import InvalidModelFile, ModelNotFound, UnsupportedOption
from ...models.files.saved import published
from .ordering import order_by_endings
from .shard import Shard

FORMAT, VERSION = "forerun corpus", 1
ABOUT = "corpus.json"
SHARD_TOKENS = 16_000_000
PARTS = ("tokens", "order", "first")


@final
@dataclass(frozen=True, slots=True)
class About:
    """tokens: of each shard. vocabulary: the fingerprint of the tokenizer, "" where there is none."""

    vocabulary: str
    vocab_size: int
    tokens: tuple[int, ...]


def build_corpus(
    texts: Iterable[Sequence[int]], directory: Path, identity: tuple[str, int], shard_tokens: int = SHARD_TOKENS
) -> About:
    """Write a new directory of texts of token ids. identity: the tokenizer's fingerprint, and the size of the vocabulary.

    Raises ValueError where there is no token, where the directory is there already, and where it can't be written.
    """
    if not 1 <= shard_tokens < 2**32:
        raise ValueError(f"shard_tokens must be in 1..{2**32 - 1}, got {shard_tokens}")
    if directory.exists():
        raise ValueError(f"{directory} is there already; name another directory")
    vocabulary, size = identity
    with published(directory, f"the corpus to {directory}") as partial:
        counts: list[int] = []
        for tokens in _shards(texts, size, shard_tokens):
            order = order_by_endings(tokens)
            first = np.concatenate(([0], np.cumsum(np.bincount(tokens, minlength=size + 1)))).astype(np.uint32)
            for part, array in zip(PARTS, (tokens, order, first), strict=True):
                np.save(partial / _name(part, len(counts)), array, allow_pickle=False)
            counts.append(len(tokens))
        if not counts:
            raise ValueError("the corpus would be empty: its files hold no token")
        about = About(vocabulary, size, tuple(counts))
        text = json.dumps({"format": FORMAT, "version": VERSION, **asdict(about)}, indent=1)
        (partial / ABOUT).write_text(text + "\n", encoding="utf-8")
    return about


def open_corpus(directory: Path, identity: Identity) -> list[Shard]:
    """The shards, mapped. identity is the model's that shall draft from them.

    Raises ModelNotFound, InvalidModelFile on what is truncated or no corpus, UnsupportedOption on another tokenizer's.
    """
    if not (directory / ABOUT).is_file():
        raise ModelNotFound(f"no corpus at {directory}: there is no {ABOUT}; make one with: forerun corpus build")
    try:
        about = _read_about(directory)
        shards = [_read_shard(directory, number, about) for number in range(len(about.tokens))]
    except (OSError, EOFError, KeyError, TypeError, ValueError) as error:
        raise InvalidModelFile(f"{directory} holds no corpus that can be read: {error}; build it again") from error
    other = "" not in (about.vocabulary, identity.vocabulary) and about.vocabulary != identity.vocabulary
    if other or about.vocab_size != identity.vocab_size:
        raise UnsupportedOption(
            f"the corpus at {directory} is of another tokenizer (vocabulary {about.vocabulary or 'unknown'} of "
            f"{about.vocab_size} tokens) than the model's ({identity.vocabulary or 'unknown'} of {identity.vocab_size}); "
            "build one with: forerun corpus build MODEL"
        )
    return shards


def _shards(texts: Iterable[Sequence[int]], size: int, most: int) -> Iterator[NDArray[Any]]:
    """Texts one after the other, each with its end, in arrays of at most so many tokens."""
    kind = np.uint16 if size < 2**16 else np.uint32
    shard, filled = np.empty(most, kind), 0
    for text in texts:
        tokens = np.asarray([*text, size] if len(text) else [], np.int64)
        for wrong in tokens[:-1][(tokens[:-1] < 0) | (tokens[:-1] >= size)][:1]:
            raise ValueError(f"token ids must be in 0..{size - 1}, got {wrong}")
        while len(tokens):
            taken = min(most - filled, len(tokens))
            shard[filled : filled + taken] = tokens[:taken]
            tokens, filled = tokens[taken:], filled + taken
            if filled == most:
                yield shard
                filled = 0
    if filled:
        yield shard[:filled]


def _name(part: str, number: int) -> str:
    return f"{part}-{number:04}.npy"


def _read_about(directory: Path) -> About:
    values = json.loads((directory / ABOUT).read_text(encoding="utf-8"))
    if (values["format"], values["version"]) != (FORMAT, VERSION):
        raise ValueError(
            f"format {values['format']!r}, version {values['version']}; this release reads {FORMAT!r}, version {VERSION}"
        )
    about = About(str(values["vocabulary"]), int(values["vocab_size"]), tuple(int(n) for n in values["tokens"]))
    if not about.tokens or min(about.tokens) < 1:
        raise ValueError("it is empty")
    return about


def _read_shard(directory: Path, number: int, about: About) -> Shard:
    arrays = []
    for part, length in zip(PARTS, (about.tokens[number],) * 2 + (about.vocab_size + 2,), strict=True):
        file = directory / _name(part, number)
        array = np.load(file, mmap_mode="r", allow_pickle=False)
        if array.shape != (length,) or array.dtype.kind != "u":
            raise ValueError(f"{file.name} holds {array.dtype} {array.shape}, {length} whole numbers are needed")
        arrays.append(array.view(np.ndarray))  # memmap itself is slow to index
    if int(arrays[2][-1]) != about.tokens[number]:
        raise ValueError(
            f"{_name(PARTS[2], number)} counts {int(arrays[2][-1])} tokens, there are {about.tokens[number]}"
        )
    return Shard(*arrays)
