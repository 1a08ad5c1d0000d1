from __future__ import annotations

import json
import math
import sys

import pytest

from forerun.cli.terminal import note, progress, show, show_json, show_table, write


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)


def test_json_has_no_infinities(capsys: pytest.CaptureFixture[str]) -> None:
    show_json({"a": [math.inf, 1.5, (math.nan, "é")], "b": {"c": -math.inf}})

    assert json.loads(capsys.readouterr().out) == {"a": [None, 1.5, [None, "é"]], "b": {"c": None}}


def test_a_pipe_gets_the_very_text(capsys: pytest.CaptureFixture[str]) -> None:
    write("a [bold]b[/] \x1b[31m" + "long " * 60, drafted=True)

    assert capsys.readouterr().out == "a [bold]b[/] \x1b[31m" + "long " * 60


@pytest.mark.usefixtures("terminal")
def test_in_a_terminal_only_drafted_text_is_coloured(capsys: pytest.CaptureFixture[str]) -> None:
    write("own ", drafted=False)
    write("drafted", drafted=True)

    assert capsys.readouterr().out == "own \x1b[32mdrafted\x1b[0m"


@pytest.mark.usefixtures("terminal")
def test_a_models_control_characters_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    write("a\x1b[2Jb\x07\nc", drafted=False)

    assert capsys.readouterr().out == "a\ufffd[2Jb\ufffd\nc"


def test_notes_go_to_stderr_and_results_to_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    note("a note")
    show("a result")
    captured = capsys.readouterr()

    assert (captured.out, captured.err) == ("a result\n", "a note\n")


def test_a_table_shows_brackets_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(("name", "value"), [("k", "[1, 2]")], "Title")
    out = capsys.readouterr().out

    assert "Title" in out
    assert "[1, 2]" in out


def test_progress_is_silent_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("working", 3) as tick:
        tick()
    captured = capsys.readouterr()

    assert (captured.out, captured.err) == ("", "")


@pytest.mark.usefixtures("terminal")
def test_progress_draws_on_stderr_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("working", 3) as tick:
        tick()
    captured = capsys.readouterr()

    assert captured.out == ""
    assert "working" in captured.err


def test_output_is_flushed_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[bool] = []
    monkeypatch.setattr(sys.stdout, "flush", lambda: flushed.append(True))
    write("a", drafted=False)

    assert flushed
