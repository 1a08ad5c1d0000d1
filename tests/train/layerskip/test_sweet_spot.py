from __future__ import annotations

from typing import Any

import pytest

import forerun
from forerun.core.values import Draft, Round, Timing, Verdict
from forerun.engine.answer import Result
from forerun.engine.stats import Stats
from forerun.testing import tiny_model
from forerun.train.data.examples import Example
from forerun.train.layerskip import sweet_spot
from forerun.train.layerskip.sweet_spot import default_exits, measure_exits, prompt_of

PROMPTS = ((1, 2, 3), (7, 8, 9, 10))


@pytest.fixture(scope="module")
def engine() -> forerun.Engine:
    return forerun.load(tiny_model("llama"))


def silent_engine() -> forerun.Engine:
    """A model whose last two layers add nothing: an exit after layer 2 is always right."""
    model = tiny_model("llama")
    for layer in model.model.layers[2:]:
        layer.self_attn.o_proj.weight.data.zero_()
        layer.mlp.down_proj.weight.data.zero_()
    return forerun.load(model)


def test_there_is_a_place_for_every_exit_and_length(engine: forerun.Engine) -> None:
    ticks: list[int] = []
    found = measure_exits(engine, PROMPTS, (1, 3), (1, 2, 4), max_new_tokens=12, tick=lambda: ticks.append(1))

    assert [(one.exit_layer, one.length) for one in found] == [(e, d) for e in (1, 3) for d in (1, 2, 4)]
    assert len(ticks) == len(PROMPTS) * 2
    for one in found:
        assert (one.equal, one.prompts) == (2, 2)
        assert one.speedup > 0
        assert one.predicted_speedup > 0
        assert one.tokens_per_second > 0
        assert one.draft_cost > 0
        assert 1 <= one.tokens_per_round <= one.length + 1
        assert len(one.acceptance_per_position) <= one.length


def test_an_exit_that_is_always_right_is_accepted_throughout() -> None:
    (found,) = measure_exits(silent_engine(), PROMPTS, (2,), (3,), max_new_tokens=13)

    assert found.acceptance == 1
    assert found.acceptance_per_position == (1.0, 1.0, 1.0)
    assert found.tokens_per_round == 4


def answer(decoded: int, rounds: list[Round], ids: tuple[int, ...] = (1, 2)) -> Result:
    prefill = Round((1,), Draft(), Verdict((), (1,)), 0, prefill=True)
    return Result(None, ids, None, Stats([prefill, *rounds]), "length", 1)


def plain_round() -> Round:
    return Round((1,), Draft(), Verdict((), (1,)), 0, timing=Timing(forward=0.010))


def drafted_round() -> Round:
    draft = Draft((1, 1, 1), (-1, 0, 1), (None, None, None))
    timing = Timing(draft=0.007, draft_forward=0.006, forward=0.014)
    return Round((1, 1, 1), draft, Verdict((0, 1), (1, 1, 1)), 0, timing=timing)


def scripted(monkeypatch: pytest.MonkeyPatch, engine: forerun.Engine, told: list[tuple[Result, Result]]) -> None:
    """Plain answers take 1 second; drafted ones of three tokens a round half of it for each token, then a quarter."""
    seen: dict[bool, int] = {True: 0, False: 0}

    def timed(way: Any, prompt: Any, options: Any) -> tuple[Result, float]:
        plain = way is engine
        result = told[seen[plain]][0 if plain else 1]
        seconds = 0.1 * result.stats.decoded * (1 if plain else (0.5, 0.25, 1.0)[seen[plain]])
        seen[plain] += 1
        return result, seconds

    monkeypatch.setattr(sweet_spot, "timed_answer", timed)


def test_speedups_are_medians_of_pairs_and_costs_are_sums(
    engine: forerun.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = answer(6, [plain_round()] * 6), answer(6, [drafted_round()] * 2)
    other = answer(6, [plain_round()] * 6), answer(6, [drafted_round()] * 2, ids=(1, 3))
    scripted(monkeypatch, engine, [pair, other, pair])
    (found,) = measure_exits(engine, [(1, 2)] * 3, (2,), (3,), max_new_tokens=7)

    assert found.speedup == pytest.approx(2)  # of 2, 4 and 1
    assert found.tokens_per_second == pytest.approx(20)
    assert (found.equal, found.prompts) == (2, 3)
    assert found.draft_cost == pytest.approx(0.002 / 0.010)
    assert found.tokens_per_round == 3
    assert found.predicted_speedup == pytest.approx(3 * 0.010 / (0.006 + 0.014))
    assert found.acceptance == pytest.approx(2 / 3)
    assert found.acceptance_per_position == (1.0, 1.0, 0.0)


def test_an_answer_of_one_token_has_no_speed(engine: forerun.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    full = answer(6, [plain_round()] * 6), answer(6, [drafted_round()] * 2)
    scripted(monkeypatch, engine, [(answer(0, []), answer(0, [])), full])
    assert measure_exits(engine, [(1, 2)] * 2, (2,), (3,), max_new_tokens=7)[0].prompts == 1

    scripted(monkeypatch, engine, [(answer(0, []), answer(0, []))])
    with pytest.raises(ValueError, match="no answer had a second token"):
        measure_exits(engine, [(1, 2)], (2,), (3,), max_new_tokens=7)


@pytest.mark.parametrize(
    ("exits", "lengths", "options", "sentence"),
    [
        ((4,), (1,), {}, "exit_layer must be in 1..3"),
        ((2,), (0,), {}, "k must be at least 1, got 0"),
        ((2,), (1,), {"vocabulary": 5}, "carving needs the lean runner"),
    ],
)
def test_what_can_not_be_drafted_is_refused(
    engine: forerun.Engine, exits: tuple[int, ...], lengths: tuple[int, ...], options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        measure_exits(engine, PROMPTS, exits, lengths, max_new_tokens=4, drafter_options=options)


@pytest.mark.parametrize(("layers", "exits"), [(2, (1,)), (4, (1, 2)), (30, (4, 8, 10, 15)), (32, (4, 8, 11, 16))])
def test_a_few_exits_are_measured_by_default(layers: int, exits: tuple[int, ...]) -> None:
    assert default_exits(layers) == exits


def test_a_prompt_ends_where_learning_starts_and_a_text_is_halved() -> None:
    assert prompt_of(Example((1, 2, 3, 4, 5), 3)) == (1, 2, 3)
    assert prompt_of(Example((1, 2, 3, 4, 5), 1)) == (1, 2)
    assert prompt_of(Example((1, 2), 1)) == (1,)
