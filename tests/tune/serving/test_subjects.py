from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from forerun.bench.worker import Worker
from forerun.tune.serving.asking import EngineFailed
from forerun.tune.serving.knobs import OFF, Knobs, Wanted
from forerun.tune.serving.llama_cpp import LlamaCpp
from forerun.tune.serving.serving_engine import Launch
from forerun.tune.serving.subjects import Generating, launched

from .stand_in import stand_in

ENGINE = LlamaCpp()
DRAFTING = ENGINE.first(Wanted(("ngram-simple",)))[0]
ECHO = Path(__file__).parents[2] / "bench" / "echo_worker.py"


def subject(folder: Path, knobs: Knobs, model: str = "m.gguf") -> Any:
    return launched(ENGINE, Launch(str(stand_in(folder)), model), knobs, 4)


def test_a_launched_engine_answers_with_its_knobs(tmp_path: Path) -> None:
    with closing(subject(tmp_path, DRAFTING)) as opened:
        found = opened.answer(["one", "two"], 2)

    assert (found.sample.decoded, found.sample.drafted) == (8, 8)


def test_a_server_that_ends_in_the_middle_says_why(tmp_path: Path) -> None:
    reason = (
        r"llama.cpp with ngram-simple 3 to 3 tokens ended in the middle \(exit code 7; it said: RuntimeError: out of"
    )
    with (
        closing(subject(tmp_path, DRAFTING, "mortal.gguf")) as opened,
        pytest.raises(EngineFailed, match=reason),
    ):
        opened.answer(["one"] * 6, 1)


def test_a_server_that_lives_and_refuses_is_told_by_its_answer(tmp_path: Path) -> None:
    with pytest.raises(EngineFailed, match=r"with 400: .*no chat template"):
        subject(tmp_path, OFF, "refusing.gguf")


def test_one_that_came_up_without_drafts_is_ended(tmp_path: Path) -> None:
    with pytest.raises(EngineFailed, match="came up without drafts; it said: E srv"):
        subject(tmp_path, DRAFTING, "foreign.gguf")


def generating(behaviour: Mapping[str, str]) -> Generating:
    worker = Worker("echo", sys.executable, ECHO, 1)
    common = {"model": "", "threads": 1, "dtype": "auto", "context": 9, "eos": []}
    worker.ask({"do": "open", "mode": "plain", "settings": {"behaviour": dict(behaviour)}, **common}, 60)
    return Generating(worker, Words(), 3)


class Words:
    """A tokenizer of words of digits."""

    chat_template = None

    def __call__(self, text: str) -> SimpleNamespace:
        return SimpleNamespace(input_ids=[int(word) for word in text.split()])


def test_transformers_worker_answers_one_prompt_after_the_other() -> None:
    with closing(generating({})) as opened:
        found = opened.answer(["1 2 3 4", "5 6 7 8"], 1)

    assert found.sample.decoded == 6
    assert len(set(found.texts)) == 2


def test_a_worker_that_ends_is_a_sentence() -> None:
    with (
        closing(generating({"plain": "crash"})) as opened,
        pytest.raises(EngineFailed, match=r"peer echo ended .*out of luck"),
    ):
        opened.answer(["1 2 3"], 1)
