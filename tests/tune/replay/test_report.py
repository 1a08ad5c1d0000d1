"""Rules against fixed lengths on a trace."""

from __future__ import annotations

import random

import pytest

from forerun.errors import UnsupportedOption
from forerun.policies.base import POLICIES
from forerun.traces.read import Trace
from forerun.tune.replay.report import Variant, default_rules, report
from forerun.tune.replay.round_costs import constant

from ..traced import by_hand

THRESHOLDS = [Variant("threshold", {"confidence": value, "max_steps": 4}) for value in (0.0, 0.5, 1.0)]


def telling(seed: int = 0, bound: float = 0.5) -> Trace:
    """Tokens above the bound are right and others wrong."""
    draw = random.Random(seed)
    answers = []
    for _ in range(8):
        draft_points = []
        for known in range(1, 20):
            confidences = [draw.random() for _ in range(min(4, 20 - known - 1))]
            agreed = next((i for i, one in enumerate(confidences) if one < bound), len(confidences))
            draft_points.append((agreed, confidences))
        answers.append(draft_points)
    return by_hand(*answers)


def test_rules_fixed_lengths_and_upper_lines_are_told_for_each_of_the_costs() -> None:
    ticks: list[int] = []
    found = report(telling(), default_rules(), [constant(0.1), constant(0.5)], tick=lambda: ticks.append(1))

    assert [one["costs"] for one in found] == ["c=0.1", "c=0.5"]
    assert len(ticks) == 2
    for under in found:
        assert [one["k"] for one in under["fixed"]] == [0, 1, 2, 3, 4]
        plain = under["fixed"][0]
        assert [plain[name] for name in ("speedup", "verification_rate", "discard_rate")] == pytest.approx([1, 1, 0])
        best = under["best_fixed"]
        assert best["speedup"] == max(one["speedup"] for one in under["fixed"]) == under["fixed"][best["k"]]["speedup"]
        for rule in under["rules"]:
            assert rule["over_best_fixed"] == pytest.approx(rule["speedup"] / best["speedup"])
            assert rule["speedup"] <= under["oracle"]["speedup"] + 1e-9
        assert under["agreeing"]["discard_rate"] == 0
        assert under["oracle"]["tokens_per_second"] is None
    assert found[0]["best_fixed"]["k"] > found[1]["best_fixed"]["k"]


def test_a_rule_that_knows_beats_every_fixed_length() -> None:
    (under,) = report(telling(), [THRESHOLDS[1:2]], [constant(0.2)])

    assert under["rules"][0]["over_best_fixed"] > 1.05


def test_all_variants_are_told_where_none_can_be_chosen() -> None:
    (under,) = report(telling(), [THRESHOLDS], [constant(0.2)])

    assert [one["label"] for one in under["rules"]] == [
        f"threshold confidence={value} max_steps=4" for value in (0.0, 0.5, 1.0)
    ]
    assert "chosen_fixed" not in under


def test_variants_and_a_fixed_length_are_chosen_on_the_other_trace() -> None:
    # where nothing is ever right, the variant that drafts least is chosen, and no draft at all
    (wrong,) = report(telling(), [THRESHOLDS, [Variant("heuristic")]], [constant(0.2)], telling(1, bound=1.1))
    (alike,) = report(telling(), [THRESHOLDS, [Variant("heuristic")]], [constant(0.2)], telling(1))

    assert [one["label"] for one in wrong["rules"]] == ["threshold confidence=1.0 max_steps=4", "heuristic"]
    assert wrong["chosen_fixed"] == pytest.approx({"k": 0, "speedup": 1})
    assert alike["rules"][0]["label"] == "threshold confidence=0.5 max_steps=4"
    assert alike["chosen_fixed"]["speedup"] <= alike["best_fixed"]["speedup"]


def test_the_rules_by_default_are_all_that_need_no_option() -> None:
    names = [rule[0].name for rule in default_rules()]

    assert {"threshold", "heuristic", "entropy", "confidence_product", "roc", "adaptive"} <= set(names)
    assert not {"fixed", "bounded", "acceptance_head", "disco"} & set(names)
    assert set(names) <= set(POLICIES.names)


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(UnsupportedOption, match="unknown policy 'magic'"):
        report(telling(), [[Variant("magic")]], [constant(0.2)])
