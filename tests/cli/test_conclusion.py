from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from forerun.cli.conclusion import conclusion, effect


def measured(ratios: list[float], tokens_per_round: float = 3, identical: bool = True) -> Any:
    where = SimpleNamespace(question=0, turn=0, position=4, margin=2.0)
    return SimpleNamespace(
        ratios=ratios,
        speculative=SimpleNamespace(stats=SimpleNamespace(tokens_per_round=tokens_per_round)),
        identical=identical,
        difference=None if identical else where,
        verdict="equal" if identical else "bug",
        rounding_margin=0.0,
    )


@pytest.mark.parametrize(
    ("ratios", "words"),
    [
        ([1.4, 1.5, 1.6], "helped (1.50 times as fast)"),
        ([0.5, 0.6, 0.7], "cost time (0.60 times as fast)"),
        ([0.9, 1.0, 1.1], "made no clear difference (0.95 to 1.05 times as fast)"),
        ([0.8, 1.6], "made no clear difference (1.00 to 1.40 times as fast)"),
        ([1.04, 1.04], "made no clear difference (1.04 to 1.04 times as fast)"),
        ([2.0], "can't be told from a single run (2.00 times as fast)"),
    ],
)
def test_the_words_follow_from_the_figures(ratios: list[float], words: str) -> None:
    assert effect(measured(ratios)) == words


def test_a_speedup_that_the_tokens_per_round_can_not_explain_is_not_believed() -> None:
    assert effect(measured([2.6, 2.7, 2.8], tokens_per_round=1.02)).startswith(
        "can't be told (2.70 times as fast, more"
    )
    assert effect(measured([1.1, 1.1, 1.1], tokens_per_round=1.02)).startswith("helped")


def test_a_method_is_judged_kind_by_kind() -> None:
    said = conclusion("lookup", {"answers": measured([1.5, 1.5]), "questions": measured([0.5, 0.5])})

    assert said == "lookup: helped (1.50 times as fast) on answers; cost time (0.50 times as fast) on questions."


def test_an_unequal_output_is_not_hidden() -> None:
    said = conclusion("lookup", {"answers": measured([1.5, 1.5]), "questions": measured([1.5, 1.5], identical=False)})

    assert "Outputs: DIFFERENT at question 1, turn 1, token 5" in said
