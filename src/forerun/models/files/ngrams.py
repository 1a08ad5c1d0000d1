"""A table of a model's own n-grams on disk: after which last tokens it goes on with which token, and how likely.

A context is kept by a key of 32 bits, in ascending order. Two contexts seldom share one, and a wrong token costs a row of a
verification and changes no text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...core.identity import Identity
from ...errors import UnsupportedOption
from .ngram_keys import STEPS
from .saved import Kind, read_saved, write_saved

KIND = Kind("n-gram table", "ngrams")
LONGEST = 8  # tokens of a context


@dataclass(frozen=True, slots=True, eq=False)
class NgramFile:
    """keys [n] ascending; tokens [n], what follows; likely [n], in 255ths; all int64. longest: of a context, in tokens.

    right: the share of held-out tokens that the table knew. trained says of what it was made, for the reader.
    """

    target: Identity
    longest: int
    keys: Tensor
    tokens: Tensor
    likely: Tensor
    right: float = 0.0
    trained: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 1 <= self.longest <= LONGEST:
            raise ValueError(f"the longest context must be of 1..{LONGEST} tokens, got {self.longest}")
        shapes = {tuple(one.shape) for one in (self.keys, self.tokens, self.likely)}
        if len(shapes) != 1 or self.keys.dim() != 1 or not len(self.keys):
            raise ValueError(
                f"keys, tokens and likely must be as long as each other and not empty, got {sorted(shapes)}"
            )
        limits = (
            (self.keys, "keys", 2**32),
            (self.tokens, "tokens", self.target.vocab_size),
            (self.likely, "likely", STEPS + 1),
        )
        for values, what, end in limits:
            least, most = int(values.min()), int(values.max())
            if least < 0 or most >= end:
                raise ValueError(f"{what} must be in 0..{end - 1}, got {least}..{most}")
        if bool((self.keys[1:] <= self.keys[:-1]).any()):
            raise ValueError("keys must ascend, each of them once")

    @property
    def target_name(self) -> str:
        """What the model was called when its answers were counted; "" if that wasn't kept."""
        return str(self.trained.get("model", ""))

    def check_target(self, other: Identity) -> None:
        """Raises UnsupportedOption where the tokens are those of another tokenizer. Other weights may do."""
        mine, its = self.target.vocabulary, other.vocabulary
        if ("" not in (mine, its) and mine != its) or self.target.vocab_size != other.vocab_size:
            raise UnsupportedOption(
                f"the n-gram table is of another tokenizer (vocabulary {mine or 'unknown'} of {self.target.vocab_size} "
                f"tokens) than the model's ({its or 'unknown'} of {other.vocab_size}); make one with: forerun train ngrams"
            )


def is_table(directory: Path) -> bool:
    return (directory / KIND.about_file).is_file()


def write_ngrams(table: NgramFile, directory: Path) -> None:
    """Raises ValueError where that fails or the directory is there; nothing half written is left."""
    about = {
        "target": table.target.as_dict(),
        "longest": table.longest,
        "right": table.right,
        "trained": dict(table.trained),
    }
    small = torch.uint16 if table.target.vocab_size <= 2**16 else torch.int32
    tensors = {
        "keys": table.keys.to(torch.uint32),
        "tokens": table.tokens.to(small),
        "likely": table.likely.to(torch.uint8),
    }
    write_saved(KIND, directory, tensors, about)


def read_ngrams(directory: Path) -> NgramFile:
    """Raises ModelNotFound, and InvalidModelFile on a file that is none of ours, truncated, or of a newer version."""
    with read_saved(KIND, directory) as (about, tensors):
        target = Identity.from_dict(about["target"])
        keys, tokens, likely = (tensors[name].long() for name in ("keys", "tokens", "likely"))
        longest, right = int(about["longest"]), float(about["right"])
        return NgramFile(target, longest, keys, tokens, likely, right, about.get("trained", {}))
