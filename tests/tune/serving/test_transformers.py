from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

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


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        ("echo 4.57.1", r"has transformers 4\.57\.1, and forerun tunes it from 5 on; update it"),
        (
            "echo PackageNotFoundError: transformers >&2; exit 1",
            r"has no transformers that runs \(PackageNotFoundError",
        ),
        ("exit 0", r"doesn't say which transformers it is"),
    ],
)
def test_an_older_one_or_none_is_refused(tmp_path: Path, script: str, sentence: str) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)

    with pytest.raises(UnsupportedOption, match=sentence):
        ENGINE.version(str(python))


def test_an_assistant_of_another_vocabulary_is_refused(tmp_path: Path) -> None:
    for name, size in (("target", 100), ("draft", 90)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps({"vocab_size": size}))

    with pytest.raises(UnsupportedOption, match=r"has a vocabulary of 90 tokens and .*target one of 100"):
        ENGINE.check(Launch("python", str(tmp_path / "target")), Wanted((), (str(tmp_path / "draft"),)))
