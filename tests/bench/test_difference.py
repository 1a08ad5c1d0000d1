from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest
import torch

import forerun
from forerun.bench.difference import allowed_margin, first_difference, preferred_by, rounding_margin, shared_length
from forerun.bench.measure import Run, run_question
from forerun.engine.answer import TokenLogprob
from forerun.engine.prompts.questions import Question
from forerun.models.packed.runner import Runner

OPTIONS = {"max_new_tokens": 6, "speculate": False}
ASKED = Question(("one", "two"))


@pytest.fixture
def plain(engine: forerun.Engine) -> Run:
    return run_question(engine, ASKED, OPTIONS, chat=True)


def changed(run: Run, turn: int, position: int, token: int | None) -> Run:
    """The run with another token at a position, or cut there."""
    answer = run.answers[turn]
    ids = answer.ids[:position] if token is None else (*answer.ids[:position], token, *answer.ids[position + 1 :])
    answers = [*run.answers]
    answers[turn] = replace(answer, ids=ids)
    return Run(tuple(answers), run.seconds)


def test_equal_runs_have_no_difference(engine: forerun.Engine, plain: Run) -> None:
    assert first_difference(engine, 0, ASKED, plain, plain, OPTIONS, chat=True) is None


@pytest.mark.parametrize("turn", [0, 1])
def test_the_margin_is_what_the_plain_run_preferred_its_token_by(engine: forerun.Engine, plain: Run, turn: int) -> None:
    prompt = ASKED.prompt([answer.text or "" for answer in plain.answers[:turn]], chat=True)
    told = engine.generate(prompt, **OPTIONS, logprobs=3).logprobs
    runner_up = told[4].top[2]
    found = first_difference(engine, 7, ASKED, plain, changed(plain, turn, 4, runner_up[0]), OPTIONS, chat=True)

    assert found is not None
    assert (found.question, found.turn, found.position) == (7, turn, 4)
    assert (found.plain, found.speculative) == (plain.ids[turn][4], runner_up[0])
    assert found.margin == pytest.approx(told[4].logprob - runner_up[1], abs=1e-4)


def test_a_token_far_down_has_at_least_the_last_candidates_margin(engine: forerun.Engine, plain: Run) -> None:
    told = engine.generate(ASKED.prompt((), chat=True), **OPTIONS, logprobs=250).logprobs
    worst, logprob = told[2].top[-1]
    found = first_difference(engine, 0, ASKED, plain, changed(plain, 0, 2, worst), OPTIONS, chat=True)

    assert found is not None
    assert told[2].logprob - told[2].top[15][1] == pytest.approx(found.margin, abs=1e-4)
    assert found.margin < told[2].logprob - logprob


def test_an_answer_that_ends_early_has_no_margin(engine: forerun.Engine, plain: Run) -> None:
    found = first_difference(engine, 0, ASKED, plain, changed(plain, 0, 3, None), OPTIONS, chat=True)

    assert found is not None
    assert (found.position, found.speculative, found.margin) == (3, None, math.inf)


def test_a_repeated_run_that_is_shorter_tells_no_margin() -> None:
    told = (TokenLogprob(3, -0.5, ((3, -0.5), (4, -1.5))),)
    assert preferred_by(told, 0, 3, 4) == 1
    assert preferred_by(told, 0, 4, 3) == -1
    assert preferred_by(told, 1, 3, 4) == math.inf
    assert preferred_by(told, 0, 9, 3) == -1  # not among the candidates: at most the last one
    assert preferred_by(told, 0, 3, 9) == math.inf  # fewer candidates than asked for: the others are impossible


def test_penalties_count_in_the_margin(engine: forerun.Engine) -> None:
    options = {**OPTIONS, "repetition_penalty": 1.5}
    plain = run_question(engine, ASKED, options, chat=True)
    found = first_difference(engine, 0, ASKED, plain, changed(plain, 0, 5, 3), options, chat=True)

    assert found is not None
    assert found.margin > 0


def test_float32_on_a_cpu_leaves_no_room_and_16_bits_leave_a_few_steps() -> None:
    cpu, cuda = torch.device("cpu"), torch.device("cuda")

    assert rounding_margin(torch.float32, cpu) == 0
    assert rounding_margin(torch.bfloat16, cpu) == 1
    assert rounding_margin(torch.float16, cpu) == 0.125
    assert 0 < rounding_margin(torch.float32, cuda) < 1e-4


def test_a_runner_whose_rows_have_the_same_bits_in_any_company_is_allowed_nothing() -> None:
    runner = SimpleNamespace(same_bits=False, dtype=torch.bfloat16, device=torch.device("cpu"))
    assert allowed_margin(cast(Runner, runner)) == 1
    runner.same_bits = True
    assert allowed_margin(cast(Runner, runner)) == 0


def test_shared_length_counts_the_equal_beginning() -> None:
    assert shared_length((1, 2, 3), (1, 2, 4)) == 2
    assert shared_length((1, 2), (1, 2, 4)) == 2
    assert shared_length((), (1,)) == 0
    assert shared_length((1, 2), (1, 2)) == 2
