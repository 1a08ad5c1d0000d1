from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from forerun.cli.tune import tune as command
from forerun.cli.tune.tune import check_tuning, seconds_of
from forerun.engine.system.file import read_system
from forerun.errors import UnsupportedOption

pytest.importorskip("optuna")
pytest.importorskip("matplotlib")


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(json.dumps({"prompt": f"again and again {n}, and again"}) + "\n" for n in range(6)))
    return file


@pytest.fixture
def tune(forerun: Callable[..., Any], tiny: str, prompts: Path, tmp_path: Path) -> Callable[..., Any]:
    def call(*more: str | Path) -> Any:
        output = tmp_path / "system.json"
        return forerun("tune", tiny, "--prompts", prompts, "-o", output, "--max-new-tokens", "8", *more)

    return call


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("10m", 600), ("1.5h", 5400), ("45", 45), (" 2 m", 120)])
def test_a_budget_is_a_time_with_a_unit(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "ten", "0m", "-5s", "10d", "1m30s"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"--budget takes a time above 0 such as 90s, 10m or 1h"):
        seconds_of(text)


def test_without_optuna_the_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: None)

    with pytest.raises(UnsupportedOption, match=r"forerun tune needs optuna: pip install 'forerun\[tune\]'"):
        check_tuning()


def test_it_writes_a_system_that_others_take(tune: Callable[..., Any], forerun: Any, tiny: str, tmp_path: Path) -> None:
    ran = tune("--budget", "1s", "--methods", "lookup,exit")

    assert ran.status == 0, ran.err
    system = read_system(tmp_path / "system.json")
    assert system.target is not None
    assert system.target.model == tiny
    assert system.tuned_on["threads"] >= 1
    assert ran.out.rstrip().endswith(f"system.json: {system.name}")
    assert forerun("generate", tiny, "again", "--system", tmp_path / "system.json", "--max-new-tokens", "4").status == 0


def test_the_report_holds_json_pictures_and_a_summary(tune: Callable[..., Any], prompts: Path, tmp_path: Path) -> None:
    folder = tmp_path / "report"

    ran = tune("--budget", "1s", "--methods", "lookup,exit", "--report", folder, "--json")

    assert ran.status == 0, ran.err
    printed, written = json.loads(ran.out), json.loads((folder / "report.json").read_text())
    assert printed == written
    assert {path.name for path in folder.iterdir()} >= {"report.json", "summary.txt", "systems.png"}
    assert (folder / "summary.txt").read_text().splitlines() == written["summary"]
    assert written["prompts"]["file"] == "prompts.jsonl"
    asked = prompts.read_text().splitlines()
    held_out = (folder / "held_out.jsonl").read_text().splitlines()
    assert len(held_out) == 2
    assert set(held_out) <= set(asked)


def test_a_finished_run_is_read_from_its_log(tune: Callable[..., Any], tmp_path: Path) -> None:
    first = json.loads(tune("--budget", "1s", "--methods", "lookup", "--json").out)
    log = (tmp_path / "system.json.log.jsonl").read_text()

    second = json.loads(tune("--budget", "1s", "--methods", "lookup", "--json").out)

    assert (tmp_path / "system.json.log.jsonl").read_text() == log
    assert second["trials"] == first["trials"]


def test_the_log_of_other_prompts_is_refused(tune: Callable[..., Any], prompts: Path) -> None:
    tune("--budget", "1s", "--methods", "lookup")
    prompts.write_text("".join(json.dumps({"prompt": f"something else {n}"}) + "\n" for n in range(5)))

    ran = tune("--budget", "1s", "--methods", "lookup")

    assert ran.status == 2
    assert "is the log of a run that differs in prompts" in ran.said


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--methods", "magic"], "unknown method 'magic' to tune; known: lookup"),
        (["--methods", "draft-model"], "method 'draft-model' needs --draft-model"),
        (["--methods", "adapter"], "method 'adapter' needs --adapter"),
        (
            ["--methods", "lookup", "--draft-model", "smollm2"],
            "--draft-model is of no use without the method 'draft-model'",
        ),
        (["--draft-model", "./nowhere"], "no model at ./nowhere"),
        (["--adapter", "nowhere"], "--adapter nowhere: there is no such file or directory"),
        (["--vocabulary-text", "nowhere"], "--vocabulary-text nowhere: there is no such file or directory"),
        (["--report", "/dev/null/report"], "--report /dev/null/report can't be made"),
        (["--budget", "soon"], "--budget takes a time above 0"),
        (["--max-new-tokens", "1"], "--max-new-tokens must be at least 2"),
    ],
)
def test_what_cannot_be_tuned_is_refused_before_the_model_is_loaded(
    tune: Callable[..., Any], flags: list[str], words: str
) -> None:
    ran = tune(*flags)

    assert ran.status == 2
    assert words in ran.said
    assert "loading" not in ran.err


def test_too_few_prompts_are_refused(tune: Callable[..., Any], prompts: Path) -> None:
    prompts.write_text('{"prompt": "one"}\n{"prompt": "two"}\n')

    ran = tune("--budget", "1s")

    assert ran.status == 2
    assert "at least 4 different prompts" in ran.said
