"""transformers' own generate beside forerun's plain decoding."""

from __future__ import annotations

from typing import Any

import pytest

from forerun import load
from forerun.bench.compare import compare
from forerun.cli.demo.measured import CARVED, FEW, Contender, Kind, answer, measured
from forerun.engine.prompts.questions import Question
from forerun.models.loading.load import Module, open_module

QUESTIONS = [Question(("say a word",)), Question(("and another",))]


@pytest.fixture(scope="module")
def module(small: str) -> Module:
    return open_module(small, dtype="float32", device="cpu")


@pytest.fixture(scope="module")
def contender(small: str) -> Contender:
    engine = load(small, drafter=CARVED.drafter, drafter_options=CARVED.drafter_options, dtype="float32")
    return Contender("its own int4 copy", "bfloat16", engine)


def found(contender: Contender, module: Module) -> Kind:
    return measured("open", "questions", [contender], module, QUESTIONS, {"max_new_tokens": 12}, 1, 9.0, lambda: None)


def test_transformers_writes_forerun_plain_text_in_float32(contender: Contender, module: Module) -> None:
    kind = found(contender, module)
    assert kind.transformers.parted is None
    plain = compare([contender.engine], QUESTIONS, {"max_new_tokens": 12}, repeats=1)[0].plain
    assert kind.transformers.answers == tuple(ids for run in plain.repeats[0] for ids in run.ids)
    assert kind.transformers.decoded == sum(len(ids) - 1 for ids in kind.transformers.answers)
    assert kind.transformers.rate > 0
    assert kind.plain_rate("bfloat16") > 0


def test_where_texts_part_the_margin_is_told(
    contender: Contender, module: Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    from forerun.cli.demo import measured as module_of

    def other(*given: Any) -> tuple[tuple[int, ...], float]:
        ids, spent = answer(*given)
        return (ids[0], (ids[1] + 1) % 256, *ids[2:]), spent

    monkeypatch.setattr(module_of, "answer", other)
    parted = found(contender, module).transformers.parted
    assert parted is not None
    assert parted[:2] == (0, 1)
    assert parted[2] > 0
    told = found(contender, module).as_dict()["transformers"]
    assert (told["equal"], told["parted"]["answer"], told["parted"]["token"]) == (False, 0, 1)


def test_an_answer_is_as_long_as_it_is_asked_for(module: Module) -> None:
    ids, spent = answer(module, [5, 6, 7], 4, 60)
    assert len(ids) == 4
    assert spent > 0
    assert ids[:2] == answer(module, [5, 6, 7], 2, 60)[0]


def test_an_answer_ends_where_time_does(module: Module) -> None:
    assert len(answer(module, [5, 6, 7], 400, 1e-6)[0]) == 1


def test_transformers_writes_few_tokens(contender: Contender, module: Module) -> None:
    kind = measured("open", "questions", [contender], module, QUESTIONS, {"max_new_tokens": 40}, 1, 9.0, lambda: None)
    assert all(len(ids) <= FEW for ids in kind.transformers.answers)
