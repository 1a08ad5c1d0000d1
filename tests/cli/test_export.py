from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from transformers import AutoConfig

from .conftest import Ran

Call = Callable[..., Ran]


def test_a_draft_is_written_and_described(forerun: Call, tiny: str, tmp_path: Path) -> None:
    ran = forerun("export", "draft", tiny, "--exit-layer", 2, "-o", tmp_path / "draft")

    assert (ran.status, ran.said) == (0, "")
    assert "2 of 4 layers" in ran.out
    assert "bit for bit" in ran.out
    assert AutoConfig.from_pretrained(tmp_path / "draft").num_hidden_layers == 2


def test_as_json_nothing_else_stands_on_stdout(forerun: Call, tiny: str, tmp_path: Path) -> None:
    ran = forerun(
        "export", "draft", tiny, "--exit-layer", 1, "--output", tmp_path / "draft", "--dtype", "bfloat16", "--json"
    )
    told = json.loads(ran.out)

    assert told["directory"] == str(tmp_path / "draft")
    assert (told["exit_layer"], told["num_layers"]) == (1, 4)
    assert told["bytes"] > 2 * told["parameters"]
    assert AutoConfig.from_pretrained(tmp_path / "draft").dtype.itemsize == 2


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (("--exit-layer", "4"), "exit_layer must be in 1..3 for a model of 4 layers, got 4"),
        (("--exit-layer", "2", "--dtype", "int3"), "unknown dtype int3; known: float32, "),
        (("--exit-layer", "many"), "valid integer"),
        ((), "--exit-layer"),
        (("--exit-layer", "2", "--draft", "x"), "name what to write: --exit-layer LAYERS of the model itself, or a"),
        (("--exit-layer", "2", "--vocabulary", "9"), "--vocabulary belongs to --draft; leave it out with --exit-layer"),
        (("--draft", "no-such-draft"), "no-such-draft"),
    ],
)
def test_what_can_not_be_written_is_refused(
    forerun: Call, tiny: str, tmp_path: Path, given: tuple[str, ...], sentence: str
) -> None:
    ran = forerun("export", "draft", tiny, *given, "-o", tmp_path / "draft")

    assert (ran.status, ran.out) == (2, "")
    assert sentence in ran.said
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_there_is_refused(forerun: Call, tiny: str, tmp_path: Path) -> None:
    ran = forerun("export", "draft", tiny, "--exit-layer", 2, "-o", tmp_path)

    assert ran.status == 2
    assert "is there already" in ran.said


def test_a_trained_draft_is_written_with_the_commands_that_start_it(forerun: Call, tiny: str, tmp_path: Path) -> None:
    ran = forerun("export", "draft", tiny, "--draft", tiny, "-o", tmp_path / "draft", "--dtype", "float32")

    assert (ran.status, ran.said) == (0, "")
    lines = ran.out.splitlines()
    assert "drafts among" in lines[0]
    assert [line.split(":")[0] for line in lines[1:]] == ["checked", "checked", "vllm", "transformers"]
    told = json.loads(forerun("export", "draft", tiny, "--draft", tiny, "-o", tmp_path / "other", "--json").out)
    assert told["path"] == str(tmp_path / "other")
    assert told["said"] == told["vocabulary"]


def test_the_command_stands_in_the_help(forerun: Call) -> None:
    assert "export" in forerun("--help").out
    assert "draft" in forerun("export", "--help").out
    assert "unknown command 'export model'; known: draft" in forerun("export", "model").err
