from typing import Any

import pytest

from forerun.bench.ratios import against_others, ratios_of
from forerun.bench.suite import Item
from forerun.engine.prompts.questions import Question

from .samples import Scripted, sample

ITEMS = [Item(str(number), kind, Question(("?",))) for number, kind in enumerate(("qa", "qa", "rag"))]
BACKENDS = [
    Scripted("plain"),
    Scripted("lookup"),
    Scripted("a:plain", baseline="a:plain"),
    Scripted("gone:plain", baseline="x"),
]
SAMPLES = {
    "plain": [sample(10, 1.0), sample(10, 2.0), sample(20, 1.0)],
    "lookup": [sample(10, 0.5), sample(10, 1.0), sample(20, 1.0)],
    "a:plain": [sample(10, 2.0), sample(10, 2.0), sample(20, 4.0)],
}


@pytest.fixture
def ratios() -> list[dict[str, Any]]:
    return ratios_of(SAMPLES, BACKENDS, ITEMS)


def test_each_method_is_set_over_each_engine_that_answered(ratios: list[dict[str, Any]]) -> None:
    assert [(pair["method"], pair["over"]) for pair in ratios] == [("plain", "a:plain"), ("lookup", "a:plain")]


def test_totals_and_medians_are_over_the_same_prompts(ratios: list[dict[str, Any]]) -> None:
    plain, lookup = ratios
    assert plain["all"]["total"][0] == 2  # 40 tokens in 4 s over 40 in 8
    assert plain["all"]["median"][0] == 2  # of 2, 1 and 4
    assert lookup["all"]["total"][0] == 3.2
    assert (plain["qa"]["total"][0], plain["rag"]["total"][0]) == (1.3333, 4)
    low, high = plain["all"]["median"][1:]
    assert low <= 2 <= high


def test_without_other_engines_there_are_no_ratios() -> None:
    assert ratios_of({"plain": SAMPLES["plain"]}, BACKENDS[:1], ITEMS) == []
    assert against_others({"ratios": []}) == (("method", "over", "total", "median"), [])


def test_answers_of_one_token_have_no_ratio() -> None:
    short = {name: [sample(0, 0.0)] * 3 for name in SAMPLES}
    pair = ratios_of(short, BACKENDS, ITEMS)[0]
    assert pair["all"] == {"total": None, "median": None}
    assert against_others({"ratios": [pair]})[1] == [("plain", "a:plain", "-", "-", "-", "-")]


def test_the_table_has_a_line_for_each_pair(ratios: list[dict[str, Any]]) -> None:
    columns, rows = against_others({"ratios": ratios})
    assert columns == ("method", "over", "total", "median", "qa", "rag")
    assert rows[0][:2] == ("plain", "a:plain")
    assert rows[0][2].startswith("2.00 [")
    assert rows[0][4:] == ("1.33", "4.00")
