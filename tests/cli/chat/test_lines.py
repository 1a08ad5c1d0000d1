"""Lines come from a pipe or a terminal; ctrl-c asks before it raises."""

from __future__ import annotations

import io
import signal
import threading
from typing import Any

import pytest

from forerun.cli.chat.lines import LEAVING, PROMPT, interruptible, lines


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_pipe_gives_its_lines_without_a_prompt(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("a\n b\n"))

    assert [line.rstrip("\n") for line in lines()] == ["a", " b"]
    assert capsys.readouterr().out == ""


def test_a_terminal_is_asked_until_ctrl_d_and_ctrl_c_drops_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal())
    typed: list[Any] = ["a", KeyboardInterrupt, "b", EOFError]
    prompts: list[str] = []

    def typing(prompt: str) -> str:
        prompts.append(prompt)
        line = typed.pop(0)
        if isinstance(line, str):
            return line
        raise line

    monkeypatch.setattr("builtins.input", typing)

    assert list(lines()) == ["a", "b"]
    assert prompts == [PROMPT] * 4
    assert LEAVING in capsys.readouterr().err


def test_a_closed_stdin_and_one_that_holds_no_text_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(ValueError, match="which is closed"):
        next(lines())
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"caf\xe9!"), "utf-8"))
    with pytest.raises(ValueError, match="stdin holds no utf-8 text"):
        next(lines())


def test_ctrl_c_asks_to_stop_and_the_second_one_raises() -> None:
    before = signal.getsignal(signal.SIGINT)
    with interruptible() as stopped:
        assert not stopped()
        signal.raise_signal(signal.SIGINT)
        assert stopped()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_in_another_thread_nothing_is_caught() -> None:
    said: list[bool] = []

    def run() -> None:
        with interruptible() as stopped:
            said.append(stopped())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()

    assert said == [False]
