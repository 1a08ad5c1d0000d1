"""Rules on the wall clock, beside the simulator."""

from __future__ import annotations

from pathlib import Path

import pytest

import forerun
from forerun.testing import tiny_model
from forerun.traces.read import Trace
from forerun.tune.replay.report import Variant
from forerun.tune.replay.round_costs import constant
from forerun.tune.replay.timing import time_rules

from ..traced import engine_with, traced

VARIANTS = [Variant("fixed", {"k": 2}), Variant("threshold", {"confidence": 0.2, "max_steps": 6})]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[forerun.Engine, Trace]:
    engine = engine_with("self")
    return engine, traced(engine, tmp_path_factory.mktemp("traces") / "t.jsonl")


def test_measured_and_simulated_stand_side_by_side(made: tuple[forerun.Engine, Trace]) -> None:
    engine, trace = made
    ticks: list[int] = []
    found = time_rules(engine, trace, VARIANTS, constant(0.1), prompts=3, repeats=2, tick=lambda: ticks.append(1))

    assert len(ticks) == 6
    assert [one.label for one in found] == [variant.label for variant in VARIANTS]
    for one in found:
        assert (one.equal, one.answers) == (6, 6)
        # the same rounds, so that only time can differ
        assert one.tokens_per_round == one.simulated_tokens_per_round > 1
        assert one.difference == pytest.approx(one.simulated / one.speedup - 1)
        assert one.speedup_quartiles[0] <= one.speedup <= one.speedup_quartiles[1]
        assert one.tokens_per_second > 0
    assert found[0].as_dict()["label"] == "fixed k=2"


def test_each_repeat_begins_with_a_rule_that_has_learnt_nothing(
    made: tuple[forerun.Engine, Trace], monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[str] = []
    build = Variant.build
    monkeypatch.setattr(Variant, "build", lambda self: built.append(self.label) or build(self))
    time_rules(*made, VARIANTS[:1], constant(0.1), prompts=1, repeats=3)

    assert built == ["fixed k=2"] * (3 + 1)


def test_a_trace_of_another_model_or_drafter_is_refused(made: tuple[forerun.Engine, Trace]) -> None:
    engine, trace = made
    for other in (
        engine_with("self", tiny_model("llama", seed=1)),
        engine.using("self", drafter_options={"exit_layer": 2}),
    ):
        with pytest.raises(ValueError, match="traced with another model, tokenizer or drafter"):
            time_rules(other, trace, VARIANTS, constant(0.1), prompts=1, repeats=1)


@pytest.mark.parametrize(("prompts", "repeats"), [(0, 1), (1, 0)])
def test_nothing_to_run_is_refused(made: tuple[forerun.Engine, Trace], prompts: int, repeats: int) -> None:
    with pytest.raises(ValueError, match="prompts and repeats must be at least 1"):
        time_rules(*made, VARIANTS, constant(0.1), prompts=prompts, repeats=repeats)


def test_answers_of_one_token_can_not_be_timed(tmp_path: Path) -> None:
    engine = engine_with("self")
    trace = traced(engine, tmp_path / "t.jsonl", max_new_tokens=1)
    with pytest.raises(ValueError, match="has a second token"):
        time_rules(engine, trace, VARIANTS, constant(0.1), prompts=1, repeats=1)
