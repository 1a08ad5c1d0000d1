"""A model that writes what a test says, at the end of the sequence included."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
import torch
from torch import Tensor

from forerun.core.processors import row_wise

END = 256


class Script:
    """A logits processor that allows one token a row: that of the script which stands there."""

    def __init__(self, prompt_tokens: int, ids: Iterable[int]) -> None:
        self._start = prompt_tokens
        self._ids = [*ids, END]

    def __call__(self, ids: Tensor, scores: Tensor) -> Tensor:
        place = min(ids.shape[-1] - self._start, len(self._ids) - 1)
        forced = torch.full_like(scores, -torch.inf)
        forced[..., self._ids[place]] = 0.0
        return forced


def write(monkeypatch: pytest.MonkeyPatch, tokenizer: Any, text: str) -> None:
    """Let every request be answered with this text."""
    ids = tokenizer(text, add_special_tokens=False).input_ids

    def processors(fields: Any, engine: Any, prompt_tokens: int) -> Iterable[Any]:
        return [row_wise(Script(prompt_tokens, ids))]

    monkeypatch.setattr("forerun.serve.requests.options.processors_of", processors)
