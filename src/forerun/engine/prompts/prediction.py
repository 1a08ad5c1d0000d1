"""The answer that a request expects, as token ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import UnsupportedOption


def predicted_tokens(prediction: str | Sequence[int] | None, tokenizer: Any | None, vocab_size: int) -> tuple[int, ...]:
    """Raises UnsupportedOption on a text without a tokenizer, ValueError on a token that the model doesn't have."""
    if prediction is None:
        return ()
    if isinstance(prediction, str):
        if tokenizer is None:
            raise UnsupportedOption(
                "a prediction as text needs a tokenizer; load the model with one, or give the prediction as token ids"
            )
        return tuple(tokenizer.encode(prediction, add_special_tokens=False))
    for token in prediction:
        if not 0 <= token < vocab_size:
            raise ValueError(f"prediction must hold token ids in 0..{vocab_size - 1}, got {token}")
    return tuple(prediction)
