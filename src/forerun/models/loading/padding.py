"""Which token fills up the shorter rows of a batch, as far as the model and its tokenizer tell."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, final


@final
@dataclass(frozen=True, slots=True)
class Padding:
    """What stands for no text in a batch of ids without a mask.

    certain is the id that transformers' generate leaves out of one, None where it takes every id for text. possible are
    ids that may be either.
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
