"""A terminal of few characters, a closed stream, a full disk, a reader who has gone: no traceback, and the right status."""

from __future__ import annotations

import io
import os
import sys

import pytest

from forerun.cli import run
from forerun.cli.streams import end_output, settle_streams
from forerun.cli.terminal import note, show, show_json, show_table, write

TEXT = "héllo ∞"


@pytest.fixture
def said_in_every_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """forerun models says a text in all the ways in which a command can."""

    def listed() -> bool:
        note(TEXT)
        write(TEXT, False)
        show(TEXT)
        show_json({"a": TEXT})
        show_table(("a",), [(TEXT,)], TEXT)
        return False

    monkeypatch.setattr("forerun.cli.listing._installed", lambda name: listed())


def ended(monkeypatch: pytest.MonkeyPatch, out: io.TextIOWrapper, *arguments: str) -> int:
    """The status of a command that writes to `out`, which the interpreter can close in the end."""
    monkeypatch.setattr(sys, "stdout", out)
    settle_streams()
    status = run(arguments)
    assert sys.stdout is out
    out.close()
    return status


def closed_pipe() -> io.TextIOWrapper:
    reading, writing = os.pipe()
    os.close(reading)
    return os.fdopen(writing, "w", encoding="utf-8")


@pytest.mark.usefixtures("said_in_every_way")
def test_an_ascii_terminal_gets_what_it_can_show(monkeypatch: pytest.MonkeyPatch) -> None:
    held = io.BytesIO()
    out = io.TextIOWrapper(held, "ascii", write_through=True)
    monkeypatch.setattr(sys, "stdout", out)
    settle_streams()

    assert run(["models"]) == 0
    shown = held.getvalue()
    assert shown.isascii()
    assert b'{"a": "h\\u00e9llo \\u221e"}' in shown
    assert b"h?llo ?" in shown
    assert b"+---" in shown


@pytest.mark.parametrize("arguments", [("--version",), ("models",), ("drafters", "--json"), ("generate", "--help")])
def test_a_closed_pipe_ends_in_silence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    assert ended(monkeypatch, closed_pipe(), *arguments) == 141
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("arguments", [("--version",), ("models",), ("drafters", "--json"), ("generate", "--help")])
def test_a_full_disk_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    full = open("/dev/full", "w", encoding="utf-8")  # noqa: SIM115  the command's end closes it

    assert ended(monkeypatch, full, *arguments) == 1
    assert capsys.readouterr().err == "forerun: can't write: No space left on device; free some space\n"


def test_a_refusal_is_told_though_nobody_reads_the_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(monkeypatch, closed_pipe(), "frobnicate") == 2
    assert "unknown command 'frobnicate'" in capsys.readouterr().err


def test_a_refusal_that_nobody_reads_has_its_status(monkeypatch: pytest.MonkeyPatch) -> None:
    deaf = closed_pipe()
    deaf.reconfigure(line_buffering=True)
    monkeypatch.setattr(sys, "stderr", deaf)

    assert run(["frobnicate"]) == 2
    with pytest.raises(BrokenPipeError):
        deaf.close()


def test_closed_streams_drop_what_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    settle_streams()
    with sys.stdout, sys.stderr:
        print("nobody hears")
        print("nobody hears", file=sys.stderr)
        assert (sys.stdout.name, sys.stderr.name) == (os.devnull, os.devnull)


def test_a_stream_with_a_way_out_of_its_own_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    out, err = (io.TextIOWrapper(io.BytesIO(), "ascii", errors) for errors in ("strict", "backslashreplace"))
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    settle_streams()

    assert (out.errors, err.errors) == ("replace", "backslashreplace")


def test_output_that_can_be_written_is(capsys: pytest.CaptureFixture[str]) -> None:
    sys.stdout.write("all of it")
    end_output()

    assert capsys.readouterr().out == "all of it"
