"""Patterns, what rows of a tree see, and reading a pattern off transformers' mask functions."""

from __future__ import annotations

import pytest
import torch
from transformers.masking_utils import (
    and_masks,
    bidirectional_mask_function,
    causal_mask_function,
    chunked_causal_mask_function,
    or_masks,
    sliding_window_bidirectional_mask_function,
    sliding_window_causal_mask_function,
)

from forerun.errors import UnsupportedModel
from forerun.models.packed.mask import Pattern, pattern_of_mask, visible

PATTERNS = [Pattern(), Pattern(window=1), Pattern(window=5), Pattern(chunk=4), Pattern(chunk=7)]


def allowed(pattern: Pattern, query: int, key: int) -> bool:
    if key > query:
        return False
    if pattern.window is not None and query - key >= pattern.window:
        return False
    return pattern.chunk is None or query // pattern.chunk == key // pattern.chunk


@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
def test_a_pattern_sees_what_its_words_say(pattern: Pattern) -> None:
    positions = torch.arange(20)
    seen = pattern.sees(positions[:, None], positions[None])
    for query in range(20):
        for key in range(20):
            assert bool(seen[query, key]) == allowed(pattern, query, key)


@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
@pytest.mark.parametrize("seed", range(12))
def test_rows_of_a_tree_see_the_prefix_and_their_ancestors_within_the_pattern(pattern: Pattern, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    committed, count, n = (
        int(torch.randint(low, high, (), generator=generator)) for low, high in ((0, 12), (4, 9), (1, 5))
    )
    parents = [int(torch.randint(-1, row, (), generator=generator)) if row else -1 for row in range(count)]
    depths: list[int] = []
    lines: list[set[int]] = []
    for row, parent in enumerate(parents):
        depths.append(0 if parent < 0 else depths[parent] + 1)
        lines.append({row} | (set() if parent < 0 else lines[parent]))
    ancestors = torch.tensor([[column in line for column in range(count)] for line in lines])

    seen = visible(pattern, committed, depths, n, ancestors[count - n :])

    for row in range(count - n, count):
        query = committed + depths[row]
        for slot in range(committed + count):
            node = slot - committed
            key = slot if node < 0 else committed + depths[node]
            expected = allowed(pattern, query, key) and (node < 0 or node in lines[row])
            actual = seen is None or bool(seen[row - count + n, slot])
            assert actual == expected, (row, slot)


def test_a_single_row_needs_no_mask_until_the_window_bites() -> None:
    assert visible(Pattern(window=8), 7, [0], 1, None) is None
    bitten = visible(Pattern(window=8), 8, [0], 1, None)
    assert bitten is not None
    assert bitten.tolist() == [[False] + [True] * 8]


def test_a_single_row_needs_no_mask_within_the_first_chunk() -> None:
    assert visible(Pattern(chunk=4), 3, [0], 1, None) is None
    second = visible(Pattern(chunk=4), 4, [0], 1, None)
    assert second is not None
    assert second.tolist() == [[False] * 4 + [True]]


def test_several_rows_of_a_chain_see_causally() -> None:
    seen = visible(Pattern(), 2, [0, 1, 2], 2, None)
    assert seen is not None
    assert seen.tolist() == [[True, True, True, True, False], [True] * 5]


def test_plain_causal_masks_are_recognised() -> None:
    assert pattern_of_mask(causal_mask_function, None) == Pattern()


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 8, 64, 4096])
def test_windows_are_recognised(size: int) -> None:
    assert pattern_of_mask(sliding_window_causal_mask_function(size), size) == Pattern(window=size)


@pytest.mark.parametrize("size", [2, 3, 4, 7, 8, 64, 8192])
def test_chunks_are_recognised(size: int) -> None:
    function = chunked_causal_mask_function(size, torch.zeros(1, dtype=torch.long))
    assert pattern_of_mask(function, size) == Pattern(chunk=size)


def sees_itself_and_the_first(batch: int, head: int, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    return (key == query) | (key == 0) & (query > 0)


def same_parity(batch: int, head: int, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    return query % 2 == key % 2


@pytest.mark.parametrize(
    ("function", "size"),
    [
        (bidirectional_mask_function, None),
        (sliding_window_bidirectional_mask_function(8), 8),
        (sliding_window_causal_mask_function(8), None),
        (sliding_window_causal_mask_function(8), 9),
        (sliding_window_causal_mask_function(9), 8),
        (chunked_causal_mask_function(8, torch.zeros(1, dtype=torch.long)), 9),
        (chunked_causal_mask_function(8, torch.full((1,), 3)), 8),
        (sees_itself_and_the_first, None),
        (and_masks(causal_mask_function, same_parity), None),
        (or_masks(causal_mask_function, same_parity), None),
        (causal_mask_function, 8),
    ],
)
def test_any_other_mask_is_refused(function, size) -> None:
    with pytest.raises(UnsupportedModel, match="neither causal nor a sliding window nor chunks"):
        pattern_of_mask(function, size)


def test_a_mask_that_goes_by_the_tokens_of_a_forward_is_refused() -> None:
    groups = torch.zeros(4)
    with pytest.raises(UnsupportedModel, match="depends on the tokens of a forward, not on positions"):
        pattern_of_mask(lambda batch, head, query, key: groups[query] == groups[key], None)


@pytest.mark.parametrize(
    ("pattern", "width", "so"),
    [
        (Pattern(), 8, False),
        (Pattern(window=8), 8, True),
        (Pattern(window=9), 8, False),
        (Pattern(chunk=8), 8, True),
        (Pattern(window=90, chunk=4), 8, True),
    ],
)
def test_how_far_a_row_reaches(pattern: Pattern, width: int, so: bool) -> None:
    assert pattern.reaches_at_most(width) is so
