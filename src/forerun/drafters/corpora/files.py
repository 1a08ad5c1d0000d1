"""A corpus on disk: a directory of files that are mapped into memory, and a JSON file that says what they are.

Texts are written as they come, and their places are sorted piece by piece, so that neither holds the whole text. The tokens
belong to one tokenizer, whose fingerprint is kept and compared.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import final

import numpy as np
from numpy.typing import NDArray

from ...core.identity import Identity
from ...errors import InvalidModelFile, ModelNotFound, UnsupportedOption
from ...models.files.saved import published
from .ordering import order_by_endings
from .places import Places

FORMAT, VERSION = "forerun corpus", 2
ABOUT, TOKENS, ORDER, FIRST = "corpus.json", "tokens.bin", "order.bin", "first.bin"
SORTED_AT_ONCE = 4_000_000  # places; more are slower, since they leave the caches
MOST_TOKENS = 2**32 - 1
NARROW = 2**16 - 2  # the largest vocabulary whose tokens and ends of texts take two bytes, with one number to spare


@final
@dataclass(frozen=True, slots=True)
class About:
    """tokens: how many, with one after each text. vocabulary: the fingerprint of the tokenizer, "" where there is none."""

    vocabulary: str
    vocab_size: int
    tokens: int

    @property
    def width(self) -> int:
        """Bytes of a token."""
        return 2 if self.vocab_size <= NARROW else 4


def build_corpus(
    texts: Iterable[Sequence[int]], directory: Path, identity: tuple[str, int], sorted_at_once: int = SORTED_AT_ONCE
) -> About:
    """Write a new directory of texts of token ids. identity: the tokenizer's fingerprint, and the size of the vocabulary.

    Raises ValueError where there is no token or too many, where the directory is there already, or can't be written.
    """
    if sorted_at_once < 1:
        raise ValueError(f"sorted_at_once must be at least 1 place, got {sorted_at_once}")
    if directory.exists():
        raise ValueError(f"{directory} is there already; name another directory")
    with published(directory, f"the corpus to {directory}") as partial:
        counts = _write_tokens(texts, partial / TOKENS, About(*identity, 0))
        about = About(*identity, int(counts.sum()))
        np.concatenate(([0], np.cumsum(counts))).astype("<u4").tofile(partial / FIRST)
        tokens = np.memmap(partial / TOKENS, f"<u{about.width}", "r").view(np.ndarray)
        with (partial / ORDER).open("wb") as file:
            for piece in order_by_endings(tokens, sorted_at_once):
                file.write(piece.astype("<u4").data)
        text = json.dumps({"format": FORMAT, "version": VERSION, **asdict(about)}, indent=1)
        (partial / ABOUT).write_text(text + "\n", encoding="utf-8")
    return about


def open_corpus(directory: Path, identity: Identity) -> Places:
    """Its places, mapped. identity is the model's that shall draft from them.

    Raises ModelNotFound, InvalidModelFile on what is truncated or no corpus, UnsupportedOption on another tokenizer's.
    """
    if not (directory / ABOUT).is_file():
        raise ModelNotFound(f"no corpus at {directory}: there is no {ABOUT}; make one with: forerun corpus build")
    try:
        about = _read_about(directory)
        places = _read_places(directory, about)
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise InvalidModelFile(f"{directory} holds no corpus that can be read: {error}; build it again") from error
    other = "" not in (about.vocabulary, identity.vocabulary) and about.vocabulary != identity.vocabulary
    if other or about.vocab_size != identity.vocab_size:
        raise UnsupportedOption(
            f"the corpus at {directory} is of another tokenizer (vocabulary {about.vocabulary or 'unknown'} of "
            f"{about.vocab_size} tokens) than the model's ({identity.vocabulary or 'unknown'} of {identity.vocab_size}); "
            "build one with: forerun corpus build MODEL"
        )
    return places


def _write_tokens(texts: Iterable[Sequence[int]], path: Path, about: About) -> NDArray[np.int64]:
    """Texts one after the other, each with its end; how often each token comes, and the end after them."""
    size = about.vocab_size
    counts = np.zeros(size + 1, np.int64)
    written = 0
    with path.open("wb") as file:
        for text in texts:
            if not len(text):
                continue
            tokens = np.asarray(text, np.int64)
            for wrong in tokens[(tokens < 0) | (tokens >= size)][:1]:
                raise ValueError(f"token ids must be in 0..{size - 1}, got {wrong}")
            ended = np.append(tokens, size).astype(f"<u{about.width}")
            written += len(ended)
            if written > MOST_TOKENS:
                raise ValueError(f"a corpus holds at most {MOST_TOKENS} tokens, and its files have more; give fewer")
            counts[: ended.max() + 1] += np.bincount(ended)
            file.write(ended.data)
    if not written:
        raise ValueError("the corpus would be empty: its files hold no token")
    return counts


def _read_about(directory: Path) -> About:
    values = json.loads((directory / ABOUT).read_text(encoding="utf-8"))
    if (values["format"], values["version"]) != (FORMAT, VERSION):
        raise ValueError(
            f"format {values['format']!r}, version {values['version']}; this release reads {FORMAT!r}, version {VERSION}"
        )
    about = About(str(values["vocabulary"]), int(values["vocab_size"]), int(values["tokens"]))
    if about.tokens < 1:
        raise ValueError("it is empty")
    return about


def _read_places(directory: Path, about: About) -> Places:
    first = memoryview(_mapped(directory / FIRST, 4 * (about.vocab_size + 2))).cast("I")
    if first[-1] != about.tokens:
        raise ValueError(f"{FIRST} counts {first[-1]} tokens, there are {about.tokens}")
    text, order = _mapped(directory / TOKENS, about.width * about.tokens), _mapped(directory / ORDER, 4 * about.tokens)
    return Places(text, order, first, about.width)


def _mapped(path: Path, length: int) -> mmap:
    with path.open("rb") as file:
        if (found := path.stat().st_size) != length:
            raise ValueError(f"{path.name} holds {found} bytes, {length} are needed")
        return mmap(file.fileno(), length, access=ACCESS_READ)
