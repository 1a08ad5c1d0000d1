"""Runs what sequences ask for, without the driver: one coroutine, or several whose forwards are packed."""

from __future__ import annotations

from collections.abc import Coroutine
from collections.abc import Sequence as Series
from typing import Any

import torch
from torch import Tensor

from forerun.models.packed.request import Request
from forerun.testing import VOCABULARY


def finish(coroutine: Coroutine[Request, Any, Any]) -> Any:
    """Run one coroutine to its end, each request in a forward of its own."""
    return together(coroutine)[0]


def together(*coroutines: Coroutine[Request, Any, Any]) -> list[Any]:
    """Run coroutines to their ends, each round's requests packed into one forward."""
    results: list[Any] = [None] * len(coroutines)
    waiting: dict[int, Request] = {}
    for i, coroutine in enumerate(coroutines):
        _advance(i, coroutine, None, waiting, results)
    while waiting:
        requests = dict(waiting)
        answers = next(iter(requests.values())).runner.execute(list(requests.values()))
        waiting.clear()
        for i, answer in zip(requests, answers, strict=True):
            _advance(i, coroutines[i], answer, waiting, results)
    return results


def _advance(i: int, coroutine: Any, answer: Any, waiting: dict[int, Request], results: list[Any]) -> None:
    try:
        waiting[i] = coroutine.send(answer)
    except StopIteration as done:
        results[i] = done.value


def own_logits(model: Any, ids: Series[int]) -> Tensor:
    """[len(ids), V] of transformers' own forward of the whole text, without a cache."""
    with torch.no_grad():
        logits: Tensor = model(torch.tensor([list(ids)]), use_cache=False).logits[0]
    return logits


def text(length: int, seed: int = 0) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(VOCABULARY, (length,), generator=generator).tolist()


def chain(length: int) -> list[int]:
    """Parents of a plain chain after the prefix."""
    return list(range(-1, length - 1))


def off(actual: Tensor, expected: Tensor) -> float:
    """The largest difference, as a share of the expected values' spread."""
    return float((actual - expected).abs().max() / expected.std())
