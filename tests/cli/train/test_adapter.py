"""forerun train exit-adapter."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from forerun.models.files.adapter import read_adapter

from ..conftest import Ran, answered, check_same_text

Call = Callable[..., Ran]
QUICK = ("--epochs", 2, "--rows", 120, "--vocabulary", 60, "--held-out", 0.3, "--save-every", 2)


@pytest.fixture(scope="module")
def data(tiny: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model's answers, with their states beside them."""
    return answered(tiny, tmp_path_factory.mktemp("data"), "2,4")


def trained(forerun: Call, tiny: str, data: Path, output: Path, *given: object) -> Ran:
    file = data / "answers.jsonl"
    return forerun("train", "exit-adapter", tiny, "--data", file, "-o", output, *QUICK, *given)  # type: ignore[arg-type]


@pytest.mark.parametrize(("inputs", "exit_layer"), [("state+token", 4), ("state", 2)])
def test_an_adapter_is_trained_and_drafts(
    forerun: Call, tiny: str, data: Path, tmp_path: Path, inputs: str, exit_layer: int
) -> None:
    output = tmp_path / "adapter"
    ran = trained(
        forerun, tiny, data, output, "--exit-layer", exit_layer, "--inputs", inputs, "--states", data / "states"
    )
    assert ran.status == 0
    assert f"{output}: " in ran.out
    assert "right tokens at each position of a draft, on 2 held-out texts: 0." in ran.out
    assert "loss" in ran.said
    shape = read_adapter(output).shape
    assert (shape.inputs, shape.exit_layer, shape.depth) == (inputs, exit_layer, 1)
    check_same_text(forerun, tiny, "--drafter", "exit_adapter", "--adapter", output)


def test_as_json_the_report_stands_alone_and_states_are_read_where_none_are_kept(
    forerun: Call, tiny: str, data: Path, tmp_path: Path
) -> None:
    output = tmp_path / "adapter"
    ran = trained(forerun, tiny, data, output, "--exit-layer", 3, "--depth", 2, "--limit", 5, "--json")
    told = json.loads(ran.out)
    assert (told["output"], told["texts"], told["held_out"]) == (str(output), 3, 2)
    assert len(told["acceptance"]) == 4
    assert read_adapter(output).shape.depth == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["adapter"]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (("--exit-layer", 5), "the exit layer must be in 1..4 for a model of 4 layers"),
        (("--exit-layer", 4, "--inputs", "state"), "the exit layer must be in 1..3 for a model of 4 layers"),
        (("--exit-layer", 2, "--inputs", "tokens"), "inputs must be one of state, state+token, got 'tokens'"),
        (("--exit-layer", 2, "--depth", 0), "depth must be at least 1, got 0"),
        (("--exit-layer", 2, "--epochs", 0), "epochs must be at least 1, got 0"),
        (("--exit-layer", 2, "--limit", 0), "--limit must be at least 1, got 0"),
        (("--exit-layer", 2, "--limit", 1), "at least two different examples are needed"),
        (("--exit-layer", 2, "--save-every", 0), "save_every must be at least 1, got 0"),
        (("--exit-layer", 2, "--vocabulary", 9999), "a draft vocabulary must hold 1..260 tokens, got 9999"),
        (("--exit-layer", 2, "--resume"), "nothing to resume"),
        (("--exit-layer", 2, "--held-out", 1), "the held-out part must be above 0 and below 1"),
        ((), "--exit-layer"),
    ],
)
def test_what_can_not_be_trained_is_refused(
    forerun: Call, tiny: str, data: Path, tmp_path: Path, given: tuple[object, ...], sentence: str
) -> None:
    ran = trained(forerun, tiny, data, tmp_path / "adapter", *given)
    assert (ran.status, ran.out) == (2, "")
    assert sentence in ran.said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "holds no example"),
        ("\n\n", "holds no example"),
        ('{"prompt_ids": [1], "answer_ids": [2]}\n{oops\n', "broken.jsonl, line 2: not valid JSON"),
        ('{"prompt_ids": [1], "answer_ids": []}\n', "broken.jsonl, line 1: there is nothing to learn"),
        ('{"question": "why"}\n', "broken.jsonl, line 1"),
    ],
)
def test_data_that_is_none_is_refused(forerun: Call, tiny: str, tmp_path: Path, content: str, sentence: str) -> None:
    (tmp_path / "broken.jsonl").write_text(content)
    ran = forerun(
        "train",
        "exit-adapter",
        tiny,
        "--data",
        tmp_path / "broken.jsonl",
        "--exit-layer",
        2,
        "-o",
        tmp_path / "adapter",
    )
    assert (ran.status, ran.out) == (2, "")
    assert sentence in ran.said
    assert [path.name for path in tmp_path.iterdir()] == ["broken.jsonl"]


def test_an_output_that_is_there_is_refused_before_the_model_is_opened(
    forerun: Call, tiny: str, data: Path, tmp_path: Path
) -> None:
    ran = trained(forerun, tiny, data, tmp_path, "--exit-layer", 2)
    assert ran.status == 2
    assert "exists already; give another output" in ran.said
    assert "loading" not in ran.err
