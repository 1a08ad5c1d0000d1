"""Depth against width: which of the two the measured times say is dear."""

from __future__ import annotations

import pytest

from forerun.design.shape_costs import Row, ShapeCosts, compare_shapes
from forerun.models.files.draft_shape import DraftShape


def shape(layers: int, width: int, vocabulary: int = 100) -> DraftShape:
    return DraftShape(layers, width, 4 * width, 4, 2, vocabulary)


def row(layers: int, width: int, ms: float, vocabulary: int = 100) -> Row:
    return shape(layers, width, vocabulary), layers * width * width, ms


def found(*rows: Row) -> ShapeCosts:
    shape_costs = compare_shapes(rows, rows)
    assert shape_costs is not None
    return shape_costs


def test_a_machine_with_a_price_for_each_layer_charges_for_depth() -> None:
    shape_costs = found(row(16, 32, 3.2), row(4, 64, 1.0), row(1, 128, 0.4))
    assert shape_costs.ratio == pytest.approx(8)
    assert shape_costs.sentence == (
        "This machine charges for depth: at about equal parameters, 16 layers of width 32 take 8.00 times as long as 1 of "
        "width 128, so a draft should be shallow and wide."
    )


def test_a_machine_on_which_wide_rows_are_slow_charges_for_width() -> None:
    assert "charges for width" in found(row(16, 32, 0.5), row(1, 128, 1.0)).sentence
    assert "deep and narrow" in found(row(16, 32, 0.5), row(1, 128, 1.0)).sentence


@pytest.mark.parametrize("ms", [0.95, 1.0, 1.05])
def test_a_machine_that_reads_bytes_charges_for_neither(ms: float) -> None:
    shape_costs = found(row(16, 32, ms), row(1, 128, 1.0))
    assert shape_costs.sentence.startswith("This machine charges for parameters, not for their shape: ")


def test_the_price_of_a_layer_and_of_parameters_are_told_apart() -> None:
    rows = [
        (one, read, 0.2 + 0.05 * one.layers + 3.0 * read / 1e6)
        for one, read, _ in (row(layers, width, 0.0) for layers in (1, 2, 4, 8) for width in (64, 128, 256))
    ]
    shape_costs = compare_shapes([rows[9], rows[0]], rows)
    assert shape_costs is not None
    assert shape_costs.per_layer == pytest.approx(0.05)
    assert shape_costs.per_million == pytest.approx(3.0)


def test_other_vocabularies_have_no_part_in_the_prices() -> None:
    rows = [row(layers, width, 0.1 * layers) for layers in (1, 2, 4) for width in (64, 128)]
    others = [row(layers, 64, 50.0, vocabulary=7) for layers in (1, 2, 4)]
    shape_costs = compare_shapes(rows[:3], [*rows, *others])
    assert shape_costs is not None
    assert shape_costs.per_layer == pytest.approx(0.1)


def test_a_few_shapes_give_no_prices() -> None:
    shape_costs = found(row(4, 64, 1.0), row(1, 128, 1.0))
    assert shape_costs.per_layer is None
    assert shape_costs.per_million is None


def test_shapes_of_one_depth_or_none_say_nothing() -> None:
    assert compare_shapes([], []) is None
    assert compare_shapes([row(2, 64, 1.0)], [row(2, 64, 1.0)]) is None
    assert compare_shapes([row(2, 64, 1.0), row(2, 60, 1.0)], []) is None
