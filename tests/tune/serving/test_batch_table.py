from __future__ import annotations

from itertools import pairwise

import pytest

from forerun.tune.serving.batch_table import table_of


@pytest.mark.parametrize(
    ("lengths", "rows"),
    [
        ({1: 3}, [[1, 1, 3]]),
        ({1: 5, 8: 0}, [[1, 2, 5], [3, 8, 0]]),
        ({8: 1, 1: 5, 64: 0}, [[1, 2, 5], [3, 22, 1], [23, 64, 0]]),
        ({1: 3, 8: 3, 64: 0}, [[1, 22, 3], [23, 64, 0]]),
        ({4: 2, 8: 1}, [[1, 5, 2], [6, 8, 1]]),
        ({1: 2, 2: 1}, [[1, 1, 2], [2, 2, 1]]),
    ],
)
def test_the_border_is_between_two_measured_sizes(lengths: dict[int, int], rows: list[list[int]]) -> None:
    assert table_of(lengths) == rows


def test_every_measured_size_has_its_own_length_and_there_is_no_gap() -> None:
    lengths = {1: 8, 3: 5, 4: 3, 16: 1, 17: 0}

    rows = table_of(lengths)

    assert rows[0][0] == 1
    assert all(later[0] == earlier[1] + 1 for earlier, later in pairwise(rows))
    for size, length in lengths.items():
        assert [row[2] for row in rows if row[0] <= size <= row[1]] == [length]
