"""The token that pads the shorter rows of a batch, by the model and its tokenizer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, final


@final
@dataclass(frozen=True, slots=True)
class Padding:
    """The ids that may be padding in a batch without a mask.

    certain: the id that transformers' generate removes, None if it takes every id for text. possible: ids that may be
    padding or text.
    """

    certain: int | None = None
    possible: frozenset[int] = frozenset()

    @property
    def ids(self) -> frozenset[int]:
        """All of them."""
        return self.possible if self.certain is None else self.possible | {self.certain}


def padding_of(config: Any, tokenizer: Any | None) -> Padding:
    """What pads by a generation config and a tokenizer.

    generate is certain of a pad token that ends no text (5.24, _prepare_attention_mask_for_generation). Without any pad
    token people fill up with the end of sequence, which may be text as well.
    """
    pad, ends = getattr(config, "pad_token_id", None), ids_in(getattr(config, "eos_token_id", None))
    certain = None if pad is None or pad in ends else int(pad)
    pads = {*ids_in(pad), *ids_in(getattr(tokenizer, "pad_token_id", None))}
    possible = pads or {*ends[:1], *ids_in(getattr(tokenizer, "eos_token_id", None))}
    return Padding(certain, frozenset(possible - {certain}))


def ids_in(value: Any) -> list[int]:
    """The token ids that a field of a configuration holds: one, several or none."""
    several = value if isinstance(value, Iterable) else [value]
    return [int(token) for token in several if token is not None]
