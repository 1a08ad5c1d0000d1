from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import forerun as library
from forerun.testing import save_tiny

from ..conftest import Ran

Call = Callable[..., Ran]


@pytest.fixture(autouse=True)
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORERUN_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def log(tiny: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    engine = library.load(tiny)
    path = tmp_path_factory.mktemp("design") / "answers.jsonl"
    lines = []
    for start in (0, 5):
        prompt = [7 * i % 250 for i in range(start, start + 9)]
        answer = engine.generate(prompt, max_new_tokens=12, ignore_eos=True).ids
        lines.append({"prompt_ids": prompt, "answer_ids": list(answer), "made_by": {"model": engine.identity.weights}})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(
        tmp_path_factory.mktemp("design") / "small", max_position_embeddings=1024, num_hidden_layers=1, seed=1
    )


def test_a_design_shows_shapes_what_they_need_and_what_to_train(forerun: Call, tiny: str) -> None:
    ran = forerun("design", tiny)
    assert ran.status == 0
    for shown in (
        "Untrained shapes, the fastest by prediction first",
        "break even",
        "Depth against width at about equal parameters",
        "This machine charges for",
        "assumed, not measured",
        f"To train it: forerun train draft {tiny} --shape layers=",
        "a plain step takes",
    ):
        assert shown in ran.out
    assert ran.said == ""


def test_given_shapes_can_stand_alone(forerun: Call, tiny: str) -> None:
    flags = ("--shape", "layers=2,width=16", "--shape", "layers=1,vocabulary=30", "--no-grid", "--json")
    told = json.loads(forerun("design", tiny, *flags).out)
    assert {(one["layers"], one["width"], one["vocabulary"]) for one in told["shapes"]} == {(2, 16, 260), (1, 32, 30)}
    assert told["depth_and_width"] is None
    assert {"hardware", "threads", "versions", "command", "date"} <= set(told)


def test_given_shapes_join_the_grid(forerun: Call, tiny: str) -> None:
    told = json.loads(forerun("design", tiny, "--shape", "layers=4,width=8", "--json").out)
    widths = {one["width"] for one in told["shapes"]}
    assert {32, 24, 16, 8} <= widths


def test_a_known_acceptance_takes_the_assumptions_place(forerun: Call, tiny: str) -> None:
    told = json.loads(
        forerun("design", tiny, "--no-grid", "--shape", "layers=2", "--known", "layers=2:0.42", "--json").out
    )
    assert told["shapes"][0]["acceptance"] == pytest.approx(0.42)
    assert "1 measured draft;" in told["acceptance"]["basis"]


def test_candidates_are_read_on_the_log_and_ranked(forerun: Call, tiny: str, small: Path, log: Path) -> None:
    ran = forerun(
        "design", tiny, "--no-grid", "--candidate", small, "--candidates", f"{tiny},vocabulary=50", "--log", log
    )
    assert ran.status == 0
    for shown in ("Candidates, the fastest by prediction first", "small", "tiny,vocabulary=50", "not by perplexity"):
        assert shown in ran.out
    assert "To train it" not in ran.out


def test_a_candidate_counts_as_a_measured_acceptance(forerun: Call, tiny: str, log: Path) -> None:
    flags = ("--no-grid", "--shape", "layers=4", "--candidate", tiny, "--log", log, "--answers", 1, "--json")
    told = json.loads(forerun("design", tiny, *flags).out)
    assert told["candidates"][0]["acceptance"] == 1.0
    assert told["shapes"][0]["acceptance"] > 0.99
    assert told["log"] == {"file": "answers.jsonl", "answers": 1}
    assert f"--data {log}" in told["recommended"]["command"]


def test_a_report_is_written(forerun: Call, tiny: str, tmp_path: Path) -> None:
    ran = forerun("design", tiny, "--no-grid", "--shape", "layers=2", "--report", tmp_path / "report")
    assert ran.status == 0
    told = json.loads((tmp_path / "report" / "design.json").read_text(encoding="utf-8"))
    assert told["shapes"][0]["layers"] == 2
    assert (tmp_path / "report" / "design.png").exists()
    assert "design.png" in ran.err


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("--candidate", "small"), "--candidate needs --log, the target's answers"),
        (("--shape", "depth=2"), "unknown part 'depth' of a shape; known: layers, width"),
        (("--shape", "layers=many"), "layers of a shape must be a whole number"),
        (("--shape", "layers=9"), "a draft's layers must be in 1..4"),
        (("--known", "layers=2:1.5"), "an acceptance must be in [0, 1), got 1.5"),
        (("--known", "layers=2:1"), "an acceptance must be in [0, 1), got 1.0"),
        (("--known", "layers=2"), "--known takes a shape, a colon and its acceptance"),
        (("--known", "layers=2:good"), "--known takes a shape, a colon and its acceptance"),
        (("--known", "layers=9:0.5"), "a draft's layers must be in 1..4"),
        (("--candidate", "small,speed=3"), "a candidate has no option 'speed'; known: vocabulary, weights"),
        (("--candidate", "small,vocabulary=few"), "vocabulary of a candidate takes a whole number, got 'few'"),
        (("--no-grid",), "there is nothing to compare"),
        (("--prefix", "0"), "--prefix must be at least 1, got 0"),
        (("--answers", "0"), "--answers must be at least 1, got 0"),
    ],
)
def test_what_cant_be_is_refused_with_a_sentence(
    forerun: Call, tiny: str, flags: tuple[str, ...], sentence: str
) -> None:
    ran = forerun("design", tiny, *flags)
    assert ran.status == 2
    assert sentence in ran.err
    assert ran.out == ""


def test_an_empty_log_is_refused(forerun: Call, tiny: str, small: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    ran = forerun("design", tiny, "--candidate", small, "--log", tmp_path / "empty.jsonl")
    assert ran.status == 2
    assert "holds no answer of at least two tokens" in ran.err


def test_a_log_of_another_model_is_refused(forerun: Call, log: Path, small: Path) -> None:
    ran = forerun("design", small, "--no-grid", "--shape", "layers=1", "--log", log)
    assert ran.status == 2
    assert "another model gave this answer" in ran.err


def test_a_candidate_with_another_tokenizer_is_refused(forerun: Call, tiny: str, log: Path, tmp_path: Path) -> None:
    other = save_tiny(tmp_path / "other", max_position_embeddings=1024)
    file = other / "tokenizer.json"
    file.write_text(file.read_text().replace('"a":', '"@@":').replace('"b":', '"a":').replace('"@@":', '"b":'))
    ran = forerun("design", tiny, "--no-grid", "--candidate", other, "--log", log)
    assert ran.status == 2
    assert "has another tokenizer" in ran.err


def test_a_head_that_cant_be_cut_is_refused(forerun: Call, tiny: str) -> None:
    ran = forerun("design", tiny, "--runner", "hf", "--no-grid", "--shape", "layers=1,vocabulary=30")
    assert ran.status == 2
    assert "whose head is whole" in ran.err


def test_transformers_modules_can_be_designed_for_too(forerun: Call, tiny: str) -> None:
    told = json.loads(forerun("design", tiny, "--runner", "hf", "--no-grid", "--shape", "layers=1", "--json").out)
    assert told["runner"] == "HFRunner"
    assert told["shapes"][0]["layers"] == 1


def test_small_weights_are_measured_in_small_weights(forerun: Call, tmp_path: Path) -> None:
    model = save_tiny(tmp_path / "wide", max_position_embeddings=512, hidden_size=64, intermediate_size=64)
    told = json.loads(
        forerun("design", model, "--weights", "int4", "--no-grid", "--shape", "layers=1,width=32,mlp=32", "--json").out
    )
    assert told["weights"] == "int4"
    assert told["shapes"][0]["parameters"]["megabytes"] < told["shapes"][0]["parameters"]["whole"] * 2e-6
    ran = forerun("design", model, "--weights", "int4", "--no-grid", "--shape", "layers=1,width=16")
    assert "int4 weights come in groups of 32 columns" in ran.err
