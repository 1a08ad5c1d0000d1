"""The command that makes the table."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from forerun.families import __main__ as command
from forerun.families.table import REFUSED, RUNS, UNMADE, WRONG, read_table, write_table


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """in_a_fork without a fork; what each family comes to."""
    answers: dict[str, object] = {}

    def answered(work: object) -> object:
        answer = answers.get(work.args[0], {"result": RUNS, "reason": ""})
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(command, "in_a_fork", answered)
    return answers


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["families", *map(str, arguments)])
    return command.main()


def test_families_are_tried_and_written(
    tried: dict[str, object], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tried["gpt2"] = RuntimeError("it took longer than 3 seconds")
    assert run(monkeypatch, "llama", "gpt2", "--output", tmp_path / "table.json") == 0
    table = read_table(tmp_path / "table.json")
    assert table.families["llama"]["result"] == RUNS
    assert table.families["gpt2"]["result"] == UNMADE
    assert "[2/2] gpt2: can't be made here it took longer than 3 seconds" in capsys.readouterr().err
    assert table.command == "python -m forerun.families"


def test_a_wrong_family_is_an_error(tried: dict[str, object], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tried["llama"] = {"result": WRONG, "reason": "token 3"}
    assert run(monkeypatch, "llama", "--output", tmp_path / "table.json") == 1


def test_named_families_leave_the_others_as_they_are(
    tried: dict[str, object], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "table.json"
    run(monkeypatch, "llama", "gpt2", "--output", file)
    tried["gpt2"] = {"result": REFUSED, "reason": "of late"}
    run(monkeypatch, "gpt2", "--output", file)
    assert {name: one["result"] for name, one in read_table(file).families.items()} == {"gpt2": REFUSED, "llama": RUNS}
    write_table(replace(read_table(file), transformers="1.2.3"), file)
    run(monkeypatch, "gpt2", "--output", file)
    assert list(read_table(file).families) == ["gpt2"]


def test_variants_are_tried_where_they_are_asked_for(
    tried: dict[str, object], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run(monkeypatch, "llama", "--variants", "--output", tmp_path / "table.json")
    assert read_table(tmp_path / "table.json").command == "python -m forerun.families --variants"


def test_all_families_go_into_the_package(
    tried: dict[str, object], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert run(monkeypatch, "--output", tmp_path / "families.json") == 0
    assert len(read_table(tmp_path / "families.json").families) > 150


def test_an_unknown_family_is_named(
    tried: dict[str, object], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        run(monkeypatch, "lama")
    assert "no decoder of transformers: lama" in capsys.readouterr().err
