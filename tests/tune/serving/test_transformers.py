from __future__ import annotations

import ast
import json
import sys

import pytest

from forerun.errors import UnsupportedOption
from forerun.tune.serving.knobs import OFF, Wanted
from forerun.tune.serving.serving_engine import Launch
from forerun.tune.serving.transformers import Transformers

ENGINE = Transformers()
LAUNCH = Launch(sys.executable, "model")


def test_lookup_and_each_draft_model_are_tried_first() -> None:
    first = ENGINE.first(Wanted((), ("d",)))

    assert [one.method for one in first] == ["lookup", "draft-model"]
    assert ENGINE.settings(first[0]) == {"generate": {"prompt_lookup_num_tokens": 3, "max_matching_ngram_size": 2}}
    assert ENGINE.settings(first[1])["assistant_generation"]["num_assistant_tokens_schedule"] == "constant"


def test_beside_a_setting_lie_others_of_its_method_each_once() -> None:
    for one in ENGINE.first(Wanted((), ("d",))):
        near = ENGINE.near(one)
        assert len(near) >= 4
        assert len({other.name for other in (one, *near)}) == len(near) + 1


def test_what_a_worker_is_told_is_json() -> None:
    for one in ENGINE.first(Wanted((), ("d",))):
        assert json.loads(json.dumps(ENGINE.settings(one))) == ENGINE.settings(one)


def test_the_command_is_a_program_with_the_options_in_it() -> None:
    for one in (OFF, *ENGINE.first(Wanted((), ("d",)))):
        program, flag, text = ENGINE.command(LAUNCH, one)
        assert (program, flag) == (sys.executable, "-c")
        ast.parse(text)
        assert ("prompt_lookup_num_tokens" in text) == (one.method == "lookup")
        assert ("assistant_model" in text) == (one.method == "draft-model")


def test_its_version_is_asked_of_its_python() -> None:
    assert int(ENGINE.version(sys.executable).split(".")[0]) >= 5


def test_several_requests_at_once_are_refused() -> None:
    with pytest.raises(
        UnsupportedOption, match="drafts for one prompt at a time, got --concurrency up to 8; leave it at 1"
    ):
        ENGINE.check(Launch("python", "model", at_once=8), Wanted())
    with pytest.raises(UnsupportedOption, match="no program that takes --engine-args, got --x"):
        ENGINE.check(Launch("python", "model", more=("--x",)), Wanted())
