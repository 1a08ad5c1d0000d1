"""Log-probabilities in the forms of both endpoints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

from ...engine.answer import TokenLogprob
from ...engine.text import BROKEN

LEAST = -9999.0  # JSON has no minus infinity; OpenAI's documentation names this number


@final
class TokenTexts:
    """What each token is by itself, special ones too."""

    def __init__(self, tokenizer: Any | None) -> None:
        self._tokenizer = tokenizer
        self._known: dict[int, str] = {}

    def __getitem__(self, token: int) -> str:
        if token not in self._known:
            self._known[token] = f"token_id:{token}" if self._tokenizer is None else self._tokenizer.decode([token])
        return self._known[token]

    def entry(self, token: int, logprob: float) -> dict[str, Any]:
        """bytes is None for a token that is a part of a character."""
        text = self[token]
        return {
            "token": text,
            "logprob": max(logprob, LEAST),
            "bytes": None if BROKEN in text else list(text.encode()),
        }


def chat_logprobs(tokens: Sequence[TokenLogprob], texts: TokenTexts) -> dict[str, Any]:
    content = [
        {
            **texts.entry(one.token, one.logprob),
            "top_logprobs": [texts.entry(other, value) for other, value in one.top],
        }
        for one in tokens
    ]
    return {"content": content, "refusal": None}


def completion_logprobs(tokens: Sequence[TokenLogprob], texts: TokenTexts, offset: int = 0) -> dict[str, Any]:
    """offset: the length of the text before these tokens."""
    offsets: list[int] = []
    for one in tokens:
        offsets.append(offset)
        offset += len(texts[one.token])
    return {
        "tokens": [texts[one.token] for one in tokens],
        "token_logprobs": [max(one.logprob, LEAST) for one in tokens],
        "top_logprobs": [{texts[other]: max(value, LEAST) for other, value in one.top} for one in tokens],
        "text_offset": offsets,
    }
