"""What plain decoding preferred where another method left its text."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest

import forerun
from forerun.bench.backend import ForerunBackend, Sample
from forerun.bench.interleaving import Measurements
from forerun.bench.margins import as_dict, differences
from forerun.testing import tiny_model

PROMPTS = [[5, 6, 7], [8, 9], [10, 11, 12]]
NEW = 8


@pytest.fixture(scope="module")
def engine() -> forerun.Engine:
    return forerun.load(tiny_model("llama"))


@pytest.fixture(scope="module")
def plain(engine: forerun.Engine) -> list[Sample]:
    answers = [engine.generate(list(prompt), max_new_tokens=NEW).ids for prompt in PROMPTS]
    return [Sample(ids, 1, 0.1, 1.0, 10.0) for ids in answers]


def parted(engine: forerun.Engine, plain: list[Sample], other: list[Sample]) -> list[Any]:
    backends = [ForerunBackend(name, "plain", engine, {}) for name in ("plain", "other")]
    return differences(engine, Measurements({"plain": plain, "other": other}, {}), backends, PROMPTS, NEW)["other"]


def test_equal_texts_have_none(engine: forerun.Engine, plain: list[Sample]) -> None:
    assert parted(engine, plain, plain) == []


def test_the_margin_is_what_the_plain_run_preferred_its_token_by(engine: forerun.Engine, plain: list[Sample]) -> None:
    told = engine.generate(PROMPTS[1], max_new_tokens=NEW, logprobs=3).logprobs
    token, logprob = told[4].top[1]
    ids = plain[1].ids
    other = [plain[0], replace(plain[1], ids=(*ids[:4], token, 1, 2)), plain[2]]
    (found,) = parted(engine, plain, other)
    assert (found.question, found.position, found.plain, found.speculative) == (1, 4, ids[4], token)
    assert found.margin == pytest.approx(told[4].logprob - logprob, abs=1e-5)


def test_an_answer_that_ends_early_has_no_margin_and_the_report_is_json(
    engine: forerun.Engine, plain: list[Sample]
) -> None:
    other = [*plain[:2], replace(plain[2], ids=plain[2].ids[:3])]
    found = parted(engine, plain, other)
    assert found[0].margin == math.inf
    told = as_dict(engine, found, ["a", "b", "c"])
    assert told["differences"] == [{"id": "c", "position": 3, "plain": plain[2].ids[3], "token": None, "margin": None}]
    assert (told["largest_margin"], told["beyond_rounding"]) == (None, 1)
    assert json.loads(json.dumps(told, allow_nan=False)) == told


def test_methods_of_other_engines_and_those_that_failed_are_left_out(
    engine: forerun.Engine, plain: list[Sample]
) -> None:
    backends = [
        ForerunBackend("plain", "plain", engine, {}),
        ForerunBackend("peer", "peer", engine, {}),
        ForerunBackend("gone", "plain", engine, {}),
    ]
    measurements = Measurements({"plain": plain, "peer": plain}, {"gone": "failed"})
    assert differences(engine, measurements, backends, PROMPTS, NEW) == {}
