"""Which slots a row sees: causal, sliding window, chunks, each along a tree of scratch rows.

transformers passes windows and chunks to an attention layer through its mask. forerun registers a mask function that returns
a Pattern instead of a mask, after checking that the model's mask really has that pattern. Any other mask is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ...errors import UnsupportedModel


@dataclass(frozen=True, slots=True)
class Pattern:
    """Causal attention; with window w only to positions above q - w; with chunk c only within q's block of c."""

    window: int | None = None
    chunk: int | None = None

    def sees(self, query: Tensor, key: Tensor) -> Tensor:
        """Whether a row at position query sees the one at position key, its own ancestry aside."""
        seen = key <= query
        if self.window is not None:
            seen = seen & (key > query - self.window)
        if self.chunk is not None:
            seen = seen & (key // self.chunk == query // self.chunk)
        return seen

    def reaches_at_most(self, width: int) -> bool:
        """Whether a row never sees more than the last `width` positions, its own among them."""
        return any(limit is not None and limit <= width for limit in (self.window, self.chunk))


def visible(pattern: Pattern, committed: int, depths: list[int], n: int, ancestors: Tensor | None) -> Tensor | None:
    """Bool [n, committed + len(depths)]: what the last n scratch rows see; None for everything.

    depths are the scratch rows' positions after the prefix; ancestors [m, len(depths)], m >= n, or None for a chain.
    """
    last = committed + max(depths)
    windowed = (pattern.window is not None and last >= pattern.window) or (
        pattern.chunk is not None and last >= pattern.chunk
    )
    if n == 1 and ancestors is None and not windowed:
        return None
    keys = torch.cat([torch.arange(committed), torch.tensor(depths) + committed])
    queries = keys[-n:, None]
    seen = (pattern if windowed else Pattern()).sees(queries, keys[None])
    if ancestors is not None:
        seen[:, committed:] &= ancestors[-n:]
    return seen


def pattern_of_mask(mask_function: Callable[..., Tensor], size: int | None) -> Pattern:
    """The Pattern that a transformers mask function computes, found by probing it; size: its window or chunk length.

    Raises UnsupportedModel if it computes anything else.
    """
    edge = 64 if size is None else size
    queries = torch.tensor([0, 1, edge - 1, edge, edge + 1, 2 * edge, 2 * edge + 1, 3 * edge - 1]).clamp(min=0)[:, None]
    keys = (
        torch.cat([queries[:, 0] + shift for shift in (-edge - 1, -edge, 1 - edge, -1, 0, 1)])
        .clamp(min=0)
        .unique()[None]
    )
    zero = torch.zeros((), dtype=torch.long)
    try:
        answer = mask_function(zero, zero, queries, keys)
    except IndexError as error:
        raise UnsupportedModel(
            "a layer's attention mask depends on the tokens of a forward, not on positions"
        ) from error
    actual = torch.as_tensor(answer).expand(queries.shape[0], keys.shape[1])
    candidates = [Pattern()] if size is None else [Pattern(window=size), Pattern(chunk=size)]
    for pattern in candidates:
        if torch.equal(actual, pattern.sees(queries, keys)):
            return pattern
    raise UnsupportedModel(
        "a layer's attention mask is neither causal nor a sliding window nor chunks; forerun can't run it exactly"
    )
