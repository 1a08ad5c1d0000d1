"""A conversation on the command line: lines in, answers out, and what commands do."""

from __future__ import annotations

import io
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import forerun as library
from forerun.testing import save_tiny

from ..conftest import Ran

Call = Callable[..., Ran]
SHORT = ("--max-new-tokens", "12")
DRAFTING = ("--drafter", "self", "--exit-layer", "2")


@pytest.fixture
def talk(forerun: Call, tiny: str, monkeypatch: pytest.MonkeyPatch) -> Call:
    def call(text: str, *flags: str) -> Ran:
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        return forerun("chat", tiny, *SHORT, *flags)

    return call


@pytest.fixture(scope="module")
def answers(tiny: str) -> tuple[str, str]:
    """What the model says to hello, and then to again."""
    engine = library.load(tiny)
    said: list[Any] = []
    for text in ("hello", "again"):
        said.append({"role": "user", "content": text})
        said.append({"role": "assistant", "content": engine.generate(said, max_new_tokens=12).text})
    return said[1]["content"], said[3]["content"]


def test_each_line_is_answered_in_view_of_those_before(talk: Call, answers: tuple[str, str]) -> None:
    ran = talk("hello\n\n  again \n")

    assert ran.status == 0
    assert ran.out == "".join(f"{answer}\n" for answer in answers)
    assert ran.said.count("12 tokens, ended by length") == 2


@pytest.mark.parametrize("flags", [DRAFTING, (*DRAFTING, "--no-speculate"), ("--drafter", "suffix")])
def test_no_method_changes_a_conversation(talk: Call, answers: tuple[str, str], flags: tuple[str, ...]) -> None:
    assert talk("hello\nagain", *flags).out == "".join(f"{answer}\n" for answer in answers)


def test_speculation_can_be_switched_and_changes_no_text(talk: Call, answers: tuple[str, str]) -> None:
    ran = talk("/speculate off\nhello\n/speculate on\n/speculate\nagain\n", *DRAFTING)

    assert ran.out == "".join(f"{answer}\n" for answer in answers)
    assert re.findall("speculation is (on|off)", ran.said) == ["off", "on", "on"]
    assert ran.said.count("drafted tokens accepted") == 1


def test_stats_compare_answers_with_drafts_and_without(talk: Call) -> None:
    ran = talk("/stats\nhello\n/speculate off\nagain\nhello\n/stats\n", *DRAFTING)
    drafts, plain = (re.sub(r"[^\w./%() ]", "", line).split() for line in ran.out.splitlines() if "│" in line)

    assert "nothing was answered yet" in ran.said
    assert drafts[:3] == ["drafting", "1", "12"]
    assert plain[:3] == ["plain", "2", "24"]
    assert plain[4:] == ["1.00", "0", "0"]


def test_reset_begins_anew(talk: Call, answers: tuple[str, str]) -> None:
    assert talk("hello\n/reset\nhello\n").out == f"{answers[0]}\n" * 2


def test_quit_ends_it(talk: Call, answers: tuple[str, str]) -> None:
    ran = talk("hello\n/quit\nagain\n")

    assert (ran.status, ran.out) == (0, f"{answers[0]}\n")


@pytest.mark.parametrize("line", ["/help", "/speculate maybe", "/stats now", "/"])
def test_an_unknown_command_lists_those_there_are(talk: Call, line: str) -> None:
    ran = talk(f"{line}\n")

    assert (ran.status, ran.out) == (0, "")
    assert f"unknown command {line!r}; known: /speculate on|off, /stats, /reset, /quit" in ran.said


def test_a_blank_before_a_slash_makes_it_text(talk: Call) -> None:
    assert talk(" /stats\n").said.count("12 tokens") == 1


def test_a_system_prompt_stands_before_every_turn(talk: Call, tiny: str) -> None:
    first = {"role": "system", "content": "be brief"}
    said = library.load(tiny).generate([first, {"role": "user", "content": "hello"}], max_new_tokens=12).text

    assert talk("hello\n/reset\nhello\n", "--system-prompt", "be brief").out == f"{said}\n" * 2


def test_ctrl_c_ends_an_answer_and_not_the_chat(
    talk: Call, answers: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = library.Engine.stream

    def pressed(self: library.Engine, prompt: Any, **options: Any) -> Iterator[Any]:
        for place, piece in enumerate(stream(self, prompt, **options)):
            if place == 3 and len(prompt) == 1:
                signal.raise_signal(signal.SIGINT)
            yield piece

    monkeypatch.setattr(library.Engine, "stream", pressed)
    ran = talk("hello\n/stats\nagain\n")
    first, _, second = ran.out.partition("\n")

    assert ran.status == 0
    assert answers[0].startswith(first)
    assert len(first) < len(answers[0])
    assert len(second.strip("\n")) > len(first)
    assert "stopped" in ran.said
    assert "nothing was answered yet" in ran.said


def test_what_can_not_be_answered_leaves_the_conversation_as_it_was(talk: Call, answers: tuple[str, str]) -> None:
    ran = talk(f"hello\n{'x' * 1100}\nagain\n")

    assert ran.out == "".join(f"{answer}\n" for answer in answers)
    assert "the context holds 1024; shorten the prompt; /reset begins anew" in ran.said


def test_in_a_terminal_accepted_tokens_are_coloured(talk: Call, tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    flags = ("--drafter", "draft_model", "--drafter-model", tiny)

    assert "\x1b[32m" in talk("hello\n", *flags).out
    assert "\x1b[32m" not in talk("/speculate off\nhello\n", *flags).out


def test_a_model_without_a_chat_template_is_refused(
    forerun: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("hello\n"))
    ran = forerun("chat", save_tiny(tmp_path, chat=False))

    assert ran.status == 2
    assert "a chat needs a chat template" in ran.said


@pytest.mark.parametrize("flags", [("--top-p", "3"), ("--temperature", "-1"), ("--max-new-tokens", "-2")])
def test_options_that_are_no_good_end_it_before_anything_is_asked(talk: Call, flags: tuple[str, ...]) -> None:
    ran = talk("hello\nagain\n", *flags)

    assert (ran.status, ran.out) == (2, "")
    assert flags[0].removeprefix("--").replace("-", "_") in ran.said


def test_answers_may_have_to_follow_a_schema(talk: Call, tmp_path: Path) -> None:
    (tmp_path / "schema.json").write_text('{"enum": ["yes", "no"]}')
    ran = talk("hello\nagain\n", "--json-schema", str(tmp_path / "schema.json"))

    assert ran.status == 0
    assert [line in ('"yes"', '"no"') for line in ran.out.splitlines()] == [True, True]


def test_what_only_single_answers_have_is_no_flag(talk: Call) -> None:
    for flag in ("--logprobs", "--prediction"):
        ran = talk("hello\n", flag, "1")
        assert ran.status == 2
        assert f"unknown option {flag}" in ran.said
