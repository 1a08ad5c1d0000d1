from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from forerun.cli.train.layerskip import recipe_of
from forerun.train.layerskip import run as training
from forerun.train.layerskip.presets import preset

from ..conftest import Ran

NOTHING = dict.fromkeys(("p_max", "e_scale", "curriculum", "rotation", "learning_rate"))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    file = tmp_path / "data.jsonl"
    lines = ({"prompt": f"count to {index}", "answer": f"{index} it is"} for index in range(30))
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def call(forerun: Callable[..., Ran], tiny: str, data: Path, *given: Any) -> Ran:
    quick = ("--steps", 2, "--batch-size", 4, "--save-every", 0, "--log-every", 1)
    return forerun("train", "layerskip", tiny, "--data", data, "--output", data.parent / "out", *quick, *given)


def test_a_checkpoint_is_trained_and_can_leave_early(forerun: Callable[..., Ran], tiny: str, data: Path) -> None:
    ran = call(forerun, tiny, data)

    assert ran.status == 0
    assert "2 steps on 28 examples" in ran.out
    assert "held-out examples" in ran.out
    assert "step 2: loss" in ran.said
    drafted = forerun(
        "generate", data.parent / "out", "hi", "--drafter", "self", "--exit-layer", 2, "--max-new-tokens", 4
    )
    assert drafted.status == 0


def test_json_is_one_object(forerun: Callable[..., Ran], tiny: str, data: Path) -> None:
    found = json.loads(call(forerun, tiny, data, "--json").out)

    assert (found["steps"], found["examples"], found["held_out"]) == (2, 28, 2)
    assert [step for step, _ in found["losses"]] == [1, 2]


def test_what_was_asked_for_is_in_the_record(forerun: Callable[..., Ran], tiny: str, data: Path) -> None:
    asked = ("--preset", "continual", "--rotation", 3, "--e-scale", 0.5, "--seed", 9, "--lora-rank", 2, "--pack", 128)

    assert call(forerun, tiny, data, *asked).status == 0

    run = json.loads((data.parent / "out" / training.ABOUT).read_text())["run"]
    assert run["recipe"] == {**preset("continual").as_dict(), "rotation": 3, "e_scale": 0.5}
    assert (run["settings"]["seed"], run["settings"]["lora_rank"], run["settings"]["pack"]) == (9, 2, 128)


def test_zero_replaces_a_presets_value() -> None:
    assert recipe_of("fine_tune", {**NOTHING, "p_max": 0.0, "e_scale": 0.0}).ordinary
    assert recipe_of("fine_tune", NOTHING) == preset("fine_tune")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "data.jsonl holds no example"),
        ('{"text": "fine"}\n{"text": \n', "data.jsonl, line 2: not valid JSON"),
        (json.dumps({"text": "x" * 2000}), "line 1: the text has 2000 tokens and at most 1024 fit"),
        (json.dumps({"text": "fine"}), "at least two different examples are needed"),
        (json.dumps({"question": "fine"}), "line 1: a line has"),
    ],
)
def test_data_that_cannot_be_learnt_from_is_refused(
    forerun: Callable[..., Ran], tiny: str, data: Path, content: str, said: str
) -> None:
    data.write_text(content)

    ran = call(forerun, tiny, data)

    assert ran.status == 2
    assert said in ran.said
    assert sorted(path.name for path in data.parent.iterdir()) == ["data.jsonl"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--preset", "quick"), "unknown preset 'quick'; known: from_scratch, continual, fine_tune"),
        (("--p-max", 2), "p_max must be within [0, 1], got 2.0"),
        (("--curriculum", "steep"), "unknown curriculum 'steep'; known: all, rotational, gradual"),
        (("--batch-size", 0), "batch_size must be at least 1, got 0"),
        (("--held-out", 1), "the held-out part must be above 0 and below 1, got 1.0"),
        (("--max-length", 5), "line 1: the text has"),
        (("--pack", 10), "doesn't fit a packed row of 10"),
        (("--resume",), "nothing to resume"),
        (("--exits", 3), "unknown option --exits; known: --data, --output"),
    ],
)
def test_options_out_of_range_are_refused_and_nothing_is_written(
    forerun: Callable[..., Ran], tiny: str, data: Path, given: tuple[Any, ...], said: str
) -> None:
    ran = call(forerun, tiny, data, *given)

    assert ran.status == 2
    assert said in ran.said
    assert sorted(path.name for path in data.parent.iterdir()) == ["data.jsonl"]


def test_an_output_that_is_there_stays_as_it_is(forerun: Callable[..., Ran], tiny: str, data: Path) -> None:
    (data.parent / "out").mkdir()

    assert "exists already" in call(forerun, tiny, data).said
    assert list((data.parent / "out").iterdir()) == []
