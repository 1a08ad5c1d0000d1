"""What further nodes of a tree must be worth, without and with a measured curve."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from forerun import load
from forerun.core.cost import Cost, Costs, Point
from forerun.core.identity import Identity
from forerun.drafters.base import Parts
from forerun.drafters.branching.tree_prices import BUDGET, Pricing, pricing, read_costs, row_prices
from forerun.errors import UnsupportedOption
from forerun.models.packed.pool import SequencePool
from forerun.models.packed.runner import HFRunner
from forerun.testing import tiny_model

CAPACITY = 256


@pytest.fixture(scope="module")
def parts() -> Parts:
    identity = Identity("llama", 4, 32, 97, "0" * 16)
    return Parts(SequencePool(HFRunner(tiny_model("llama"), "tiny")), identity, None, lambda name: pytest.fail(name))


def node_prices(parts: Parts, budget: int, least: float, costs: str) -> tuple[float, ...]:
    return pricing(parts, budget, least, costs).prices(None)


def curve(**ms: float) -> Cost:
    """rows1=10, rows4=12, ..."""
    return Cost(
        "tiny", "HFRunner", "float32", "full", tuple(Point(int(rows[4:]), 0, time) for rows, time in ms.items())
    )


@pytest.fixture
def kept(tmp_path: Path) -> Any:
    def write(*costs: Cost) -> str:
        file = tmp_path / "costs.json"
        file.write_text(json.dumps({"model": "tiny", **Costs(costs).as_dict()}), encoding="utf-8")
        return str(file)

    return write


def test_without_a_curve_every_node_costs_the_least_confidence(parts: Parts) -> None:
    assert node_prices(parts, 5, 0.2, "") == (0.2,) * 5
    assert node_prices(parts, 0, 0.0, "") == (0.0,) * BUDGET


def test_a_row_costs_the_slope_of_the_curve_in_plain_forwards() -> None:
    assert row_prices(curve(rows1=10, rows2=11, rows4=15), 3) == pytest.approx([0.1, 0.2, 0.2])


def test_a_step_in_the_curve_is_paid_by_all_the_rows_that_share_it() -> None:
    """Five rows run as eight: the dear fifth row comes with three cheap ones."""
    steps = curve(rows1=10, rows4=10, rows5=18, rows8=18, rows9=40, rows12=40)
    prices = row_prices(steps, 11)
    assert prices[:3] == pytest.approx([0] * 3)
    assert prices[3:7] == pytest.approx([0.2] * 4)
    assert prices[7:] == pytest.approx([0.55] * 4)


def test_prices_never_fall_whatever_was_measured() -> None:
    noisy = curve(rows1=10, rows2=14, rows3=11, rows4=16, rows6=13, rows8=30)
    prices = row_prices(noisy, 7)
    assert prices == sorted(prices)
    assert len(prices) == 7


def test_the_budget_ends_where_a_sure_token_would_not_pay(parts: Parts, kept: Any) -> None:
    file = kept(curve(rows1=10, rows4=16, rows8=60))
    assert node_prices(parts, 0, 0.0, file) == pytest.approx((0.2,) * 3)
    assert node_prices(parts, 0, 0.3, file) == pytest.approx((0.3,) * 3)


def test_the_budget_ends_where_the_measurements_do(parts: Parts, kept: Any) -> None:
    assert len(node_prices(parts, 0, 0.0, kept(curve(rows1=10, rows16=12)))) == 15


def test_a_given_budget_holds_at_the_curves_prices(parts: Parts, kept: Any) -> None:
    prices = node_prices(parts, 6, 0.1, kept(curve(rows1=10, rows4=10, rows8=14)))
    assert prices == pytest.approx((0.1,) * 6)
    assert node_prices(parts, 9, 0.0, kept(curve(rows1=10, rows4=40)))[8] == pytest.approx(1.0)


def test_the_target_is_the_first_of_the_costs_in_a_file(kept: Any) -> None:
    target, draft = curve(rows1=10), Cost("small", "HFRunner", "float32", "full", (Point(1, 0, 2),))
    assert read_costs(kept(target, draft)) == target


@pytest.mark.parametrize("content", [None, "no json", "{}", '{"costs": []}', '{"costs": [{"rows": 1}]}'])
def test_a_file_without_costs_is_refused(parts: Parts, tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "no-costs.json"
    if content is not None:
        file.write_text(content, encoding="utf-8")
    with pytest.raises(UnsupportedOption, match=r"costs must be a file of measured costs.*no-costs\.json"):
        node_prices(parts, 0, 0.0, str(file))


@pytest.mark.parametrize(
    ("budget", "least", "message"),
    [
        (-1, 0.0, r"budget must be at least 0 nodes .* got -1"),
        (
            CAPACITY,
            0.0,
            rf"budget must be at most 255 nodes, since the cache of tiny holds {CAPACITY} tokens, got {CAPACITY}",
        ),
        (1, -0.1, r"min_confidence must be in \[0, 1\], got -0.1"),
        (1, 1.1, r"min_confidence must be in \[0, 1\], got 1.1"),
    ],
)
def test_numbers_out_of_range_are_refused(parts: Parts, budget: int, least: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        node_prices(parts, budget, least, "")


def test_a_small_context_holds_a_small_tree(parts: Parts) -> None:
    small = SequencePool(HFRunner(tiny_model("llama", max_position_embeddings=9)))
    assert len(node_prices(Parts(small, parts.identity, None, parts.load), 0, 0.0, "")) == 8


def test_costs_that_the_machine_is_known_to_have_serve_where_no_file_is_given(parts: Parts, kept: Any) -> None:
    measured, given = curve(rows1=10, rows4=16, rows8=60), curve(rows1=10, rows16=12)
    assert pricing(parts, 0, 0.0, "").prices(measured) == pytest.approx((0.2,) * 3)
    assert len(pricing(parts, 0, 0.0, kept(given)).prices(measured)) == 15
    assert Pricing(0, 0.1, 4).prices(None) == (0.1,) * 4


@pytest.mark.parametrize("drafter", ["tree", "graph"])
def test_a_drafter_asks_what_the_machine_costs_for_each_request(drafter: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rows cost as much as one and a third one too much, so one node is drafted a round."""
    options = {"of": "self", "n": 3, "min_confidence": 0.0}
    engine = load(tiny_model("llama"), drafter=drafter, drafter_options=options)
    many = engine.generate([5, 6, 7], max_new_tokens=8).stats
    monkeypatch.setattr(engine.runner, "cost", curve(rows1=10, rows2=10, rows3=30))
    one = engine.generate([5, 6, 7], max_new_tokens=8).stats
    assert many.drafted > 2 * many.rounds
    assert one.drafted <= one.rounds


def test_a_byte_order_mark_does_not_matter(tmp_path: Path) -> None:
    target, file = curve(rows1=10), tmp_path / "costs.json"
    file.write_text(json.dumps(Costs((target,)).as_dict()), encoding="utf-8-sig")
    assert read_costs(str(file)) == target
