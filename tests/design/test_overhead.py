"""What rounds take beside forwards."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from time import sleep
from typing import Any

import pytest

import forerun
from forerun.core.values import Step
from forerun.design import overhead
from forerun.design.overhead import Scripted, _Run, _shared_out, measure_overhead
from forerun.engine.engine import Engine
from forerun.testing import save_tiny

PROMPT = [3, 1, 4, 1, 5]


def test_right_drafts_are_all_accepted_and_wrong_ones_never(engine: Engine) -> None:
    options: dict[str, Any] = {"max_new_tokens": 13, "ignore_eos": True}
    plain = engine.generate(PROMPT, **options)
    for wrong, tokens_per_round in ((0, 4.0), (1, 1.0)):
        scripted = engine.using(
            lambda target, wrong=wrong: Scripted(list(plain.ids), len(PROMPT), wrong, engine.runner.vocab_size),
            policy_options={"k": 3},
        )
        result = scripted.generate(PROMPT, **options)
        assert result.ids == plain.ids
        assert result.stats.tokens_per_round == tokens_per_round


def test_a_loop_is_measured_without_its_forwards(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    execute = engine.runner.execute

    def slow(requests: Any) -> Any:
        sleep(0.003)
        return execute(requests)

    monkeypatch.setattr(engine.runner, "execute", slow)
    found = measure_overhead(engine, prefix=20, repeats=2)
    assert 0 <= found.ms(6, 7) < 3.0


def test_a_policys_own_time_is_found_in_the_rounds(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    stop = overhead._Watched.should_stop

    def slow(self: Any, steps: Sequence[Step]) -> bool:
        if steps:
            sleep(0.002)
        return stop(self, steps)

    monkeypatch.setattr(overhead._Watched, "should_stop", slow)
    found = measure_overhead(engine, prefix=20, repeats=2)
    assert 1.5 < found.drafted + found.emitted < 6.0


def test_times_are_shared_out_as_they_were_made() -> None:
    counts = [(48, 0, 48), (48, 280, 48), (7, 42, 48), (48, 0, 48)]
    runs = [_Run(*each, ms=0.5 * each[0] + 0.02 * each[1] + 0.1 * each[2]) for each in counts]
    found = _shared_out(runs)
    assert (found.round, found.drafted, found.emitted) == pytest.approx((0.5, 0.02, 0.1))


def test_noise_below_nothing_is_nothing() -> None:
    runs = [_Run(48, 0, 48, 48.0), _Run(48, 280, 48, 40.0), _Run(7, 42, 48, 7.0)]
    assert _shared_out(runs).drafted == 0.0


def test_a_short_context_is_measured_as_far_as_it_goes(tmp_path: Path) -> None:
    short = forerun.load(save_tiny(tmp_path / "short", max_position_embeddings=40))
    assert measure_overhead(short, prefix=10, repeats=1).round >= 0
