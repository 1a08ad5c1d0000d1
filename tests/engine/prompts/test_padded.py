"""Rows of a batch come apart without what fills them up, or are refused."""

from __future__ import annotations

import re

import pytest

from forerun.engine.prompts.padded import refuse_possible, unmasked, without_padding
from forerun.errors import UnsupportedOption
from forerun.models.loading.padding import Padding

PAD, END = 9, 8
CERTAIN, POSSIBLE = Padding(PAD), Padding(None, frozenset({END}))


@pytest.mark.parametrize("mask", [[0, 0, 1, 1], [False, False, True, True], [0.0, 0.0, 1.0, 1.0]])
def test_a_mask_leaves_out_what_stands_on_the_left(mask: list[float]) -> None:
    assert unmasked([END, PAD, 1, 2], mask, 0) == [1, 2]


def test_a_mask_leaves_out_what_stands_on_the_right() -> None:
    assert unmasked([1, 2, END, PAD], [1, 1, 0, 0], 0) == [1, 2]


def test_a_mask_of_ones_makes_text_of_everything() -> None:
    assert unmasked([PAD, 1, PAD], [1, 1, 1], 0) == [PAD, 1, PAD]


@pytest.mark.parametrize(
    ("mask", "sentence"),
    [
        ([1, 1], "the attention mask of row 4 has 2 places and its ids have 3"),
        ([1, 2, 1], "an attention mask holds 0 and 1, got 2 in row 4"),
        ([1, 0.5, 1], "an attention mask holds 0 and 1, got 0.5 in row 4"),
        ([1, [1], 1], "an attention mask holds 0 and 1, got [1] in row 4"),
        ([0, 0, 0], "the attention mask of row 4 is all padding; give at least one token"),
        ([1, 0, 1], "the attention mask of row 4 is padding inside the text; pad on the left or on the right"),
    ],
)
def test_a_mask_that_tells_no_text_is_refused(mask: list[float], sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        unmasked([1, 2, 3], mask, 4)


def test_the_certain_pad_token_is_left_out_at_either_end() -> None:
    assert without_padding([[PAD, PAD, 1], [1, 2, PAD], [1, 2, 3]], CERTAIN) == [[1], [1, 2], [1, 2, 3]]
    assert without_padding([[PAD, 1]], CERTAIN) == [[1]]


def test_the_certain_pad_token_inside_a_text_is_refused() -> None:
    with pytest.raises(UnsupportedOption, match="the pad token 9 in row 1 is padding inside the text"):
        without_padding([[1, 2, 3], [1, PAD, 3]], CERTAIN)
    with pytest.raises(ValueError, match="the pad token 9 in row 0 is all padding"):
        without_padding([[PAD, PAD]], CERTAIN)


def test_without_a_pad_token_every_id_is_text() -> None:
    assert without_padding([[PAD, 1], [2, PAD]], Padding()) == [[PAD, 1], [2, PAD]]


@pytest.mark.parametrize(
    ("rows", "row", "end"),
    [
        ([[END, 1], [2, 3]], 0, "begins"),
        ([[2, 3], [1, END]], 1, "ends"),
        ([[END, END, 1], [END, 1, 2]], 0, "begins"),
        ([[END, END, 1], [END, END, 2]], 0, "begins"),
        ([[1, END, END]], 0, "ends"),
    ],
)
def test_a_token_that_may_be_padding_or_text_is_refused(rows: list[list[int]], row: int, end: str) -> None:
    with pytest.raises(UnsupportedOption, match=f"row {row} of the batch {end} with token 8, .*pass the mask"):
        without_padding(rows, POSSIBLE)


@pytest.mark.parametrize("rows", [[[END, 1], [END, 2]], [[END, 1]], [[1, END], [2, END]], [[1, END, 2], [1, 2, 3]]])
def test_one_such_token_at_the_same_end_of_every_row_or_inside_is_text(rows: list[list[int]]) -> None:
    assert without_padding(rows, POSSIBLE) == rows


def test_several_tokens_may_be_padding() -> None:
    refuse_possible([[1, 2], [3, 4]], {END, PAD})
    with pytest.raises(UnsupportedOption, match="with token 9"):
        refuse_possible([[1, 2], [3, PAD]], {END, PAD})
