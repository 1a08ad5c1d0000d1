from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from forerun import Engine, load
from forerun.core.values import Sampling
from forerun.errors import UnsupportedOption
from forerun.models.files.classifier_heads import ACCEPTANCE, read_classifier_head
from forerun.testing import save_tiny_adapter, tiny_model
from forerun.train.data.examples import Example
from forerun.train.heads.acceptance_run import HeadRun, train_head
from forerun.train.heads.recipes import HeadRecipe

TOKENS = 16
QUICK = HeadRecipe(depth=1, epochs=12, rows=64, learning_rate=3e-3)


@pytest.fixture(scope="module")
def target() -> Any:
    return tiny_model("llama", vocab_size=TOKENS)


@pytest.fixture(scope="module")
def draft(target: Any) -> Any:
    """The target's own, but that it mixes up the upper half of the tokens: it is seen from the token what it is worth."""
    model = deepcopy(target)
    with torch.no_grad():
        model.lm_head.weight[TOKENS // 2 :] = target.lm_head.weight[TOKENS // 2 :].flip(0)
    return model


@pytest.fixture(scope="module")
def answers(target: Any) -> list[Example]:
    prompts = [[one % TOKENS, 3 * one % TOKENS, (5 * one + 1) % TOKENS, 2] for one in range(50)]
    results = load(target).generate(prompts, max_new_tokens=30, temperature=1.0, seed=1)
    return [Example((*prompt, *result.ids), 4) for prompt, result in zip(prompts, results, strict=True)]


def engine(target: Any, draft: Any) -> Engine:
    return load(target, drafter="draft_model", drafter_options={"model": draft})


def silent(what: str, ticks: int) -> Callable[[], None]:
    return lambda: None


@pytest.fixture(scope="module")
def trained(target: Any, draft: Any, answers: list[Example], tmp_path_factory: pytest.TempPathFactory) -> Any:
    run = HeadRun(
        examples=answers,
        sampling=Sampling(1.0),
        recipe=QUICK,
        output=tmp_path_factory.mktemp("heads") / "head",
        held_out=0.2,
    )
    return train_head(run, engine(target, draft), silent)


def test_a_head_of_a_predictable_pair_beats_the_constant_held_out(trained: Any) -> None:
    assert trained.cross_entropy < 0.93 * trained.constant
    assert (trained.texts + trained.held_out, trained.left_out) == (50, 0)
    assert 7 < trained.held_out < 13
    assert 900 < trained.tokens < trained.texts * 30
    assert 0.3 < trained.accepted < 0.95


def test_the_threshold_is_the_training_s_and_in_the_file(trained: Any) -> None:
    file = read_classifier_head(ACCEPTANCE, Path(trained.output))

    assert file.threshold == pytest.approx(trained.h)
    assert 0 < trained.h < 1
    assert trained.time_per_token < 1
    assert file.trained["recipe"]["mixing"] == 0.15
    assert file.trained["sampling"] == {"temperature": 1.0, "top_p": 1.0, "top_k": 0}
    assert file.trained["cross_entropy"] == trained.cross_entropy
    assert file.reject_weight == 6


def test_the_head_stops_drafts_where_they_fail(target: Any, draft: Any, trained: Any) -> None:
    plain = engine(target, draft)
    options = {"max_new_tokens": 200, "temperature": 1.0, "seed": 5}
    given = {"head": trained.output, "h": 0.5, "min_steps": 1}
    headed = plain.using(plain.drafter, "acceptance_head", policy_options=given)
    fixed = plain.using(plain.drafter, "fixed", policy_options={"k": 6})

    by_head, by_count = (one.generate([1, 2, 3, 4], **options).stats for one in (headed, fixed))
    assert by_head.acceptance > by_count.acceptance


def test_a_head_of_this_pair_is_refused_elsewhere(target: Any, trained: Any) -> None:
    with pytest.raises(ValueError, match="the policy was trained for another drafter: draft_model of weights"):
        load(target, drafter="self", policy="acceptance_head", policy_options={"head": trained.output})


@pytest.mark.parametrize("inputs", ["state", "state+token"])
def test_an_exit_adapter_gets_a_head_of_its_own(
    target: Any, answers: list[Example], tmp_path: Path, inputs: str
) -> None:
    adapter = str(save_tiny_adapter(tmp_path / "adapter", target, 2, inputs))
    built = load(target, drafter="exit_adapter", drafter_options={"adapter": adapter})
    run = HeadRun(
        examples=answers[:12], sampling=Sampling(1.0), recipe=replace(QUICK, epochs=2), output=tmp_path / "head"
    )
    report = train_head(run, built, silent)

    file = read_classifier_head(ACCEPTANCE, tmp_path / "head")
    assert file.pair == built.pair
    assert file.weights["out.weight"].shape == (2, 32)
    assert report.cross_entropy <= report.constant + 1e-3
    headed = built.using(built.drafter, "acceptance_head", policy_options={"head": str(tmp_path / "head")})
    assert headed.generate([1, 2, 3], max_new_tokens=20).ids == load(target).generate([1, 2, 3], max_new_tokens=20).ids


def test_texts_with_too_short_prompts_are_left_out_and_counted(
    target: Any, draft: Any, answers: list[Example], tmp_path: Path
) -> None:
    examples = [*answers[:6], Example((1, 2, 3), 2), Example((1, 2), 1)]
    run = HeadRun(examples=examples, sampling=Sampling(1.0), recipe=replace(QUICK, epochs=1), output=tmp_path / "head")

    report = train_head(run, engine(target, draft), silent)
    assert (report.texts + report.held_out, report.left_out) == (6, 2)
    assert json.loads((tmp_path / "head" / "head.json").read_text())["trained"]["left_out"] == 2


def test_bars_tick_for_each_text_and_each_epoch(
    target: Any, draft: Any, answers: list[Example], tmp_path: Path
) -> None:
    ticked: dict[str, list[int]] = {}

    def begin(what: str, ticks: int) -> Callable[[], None]:
        ticked[what] = [ticks, 0]

        def tick() -> None:
            ticked[what][1] += 1

        return tick

    run = HeadRun(
        examples=answers[:5], sampling=Sampling(1.0), recipe=replace(QUICK, epochs=3), output=tmp_path / "head"
    )
    train_head(run, engine(target, draft), begin)

    assert ticked == {"reading answers": [5, 5], "training": [3, 3]}


def test_a_drafter_without_states_is_refused(target: Any, answers: list[Example], tmp_path: Path) -> None:
    run = HeadRun(examples=answers[:5], sampling=Sampling(1.0), recipe=QUICK, output=tmp_path / "head")
    with pytest.raises(UnsupportedOption, match="can't read a text in one pass"):
        train_head(run, load(target, drafter="lookup"), silent)
    assert not (tmp_path / "head").exists()
