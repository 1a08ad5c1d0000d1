"""Lines of training data at fault: every command that reads such data names them, or leaves them out and says so."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from forerun.cli.train.lines import counting, read_data, skipped_as_dict
from forerun.testing import END, tiny_tokenizer

from ..conftest import Ran

Call = Callable[..., Ran]
BAD = (
    '{"prompt_ids": [5, 6, 7], "answer_ids": [260]}',
    '{"messages": [{"content": "a"}, {"role": "assistant", "content": "b"}]}',
    '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": []}]}',
    '{"conversations": []}',
    '{"body": "a"}',
    "{oops",
)
STUDENT = ("--epochs", 1, "--rows", 120, "--held-out", 0.3)
COMMANDS: dict[str, Sequence[Any]] = {
    "layerskip": ("--steps", 1, "--batch-size", 2, "--save-every", 0),
    "report": ("--timed", 0, "--max-new-tokens", 2, "--exit-layer", 2),
    "exit-adapter": ("--exit-layer", 4, "--vocabulary", 60, *STUDENT),
    "draft": ("--shape", "layers=1,vocabulary=60", *STUDENT),
    "acceptance-head": ("--drafter", "self", "--exit-layer", 2, "--epochs", 1),
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A good answer, six lines at fault, three good answers more."""
    made = {"made_by": {"temperature": 0.8}}
    good = [json.dumps({"prompt_ids": [5, 6, 7, n], "answer_ids": [n + 1, n + 2], **made}) for n in range(4)]
    file = tmp_path / "data.jsonl"
    file.write_text("\n".join([good[0], *BAD, *good[1:]]))
    return file


def call(forerun: Call, command: str, tiny: str, data: Path, *given: Any) -> Ran:
    output = () if command == "report" else ("--output", data.parent / "out")
    return forerun("train", command, tiny, "--data", data, *output, *COMMANDS[command], *given)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_first_line_at_fault_ends_a_command_unless_such_are_to_be_skipped(
    forerun: Call, tiny: str, data: Path, command: str
) -> None:
    refused = call(forerun, command, tiny, data)

    assert (refused.status, refused.out) == (2, "")
    # how answers were drawn is read first, from every line that is an object
    line = 7 if command == "acceptance-head" else 2
    assert f"data.jsonl, line {line}: " in refused.said

    ran = call(forerun, command, tiny, data, "--skip-bad", "--json")
    assert ran.status == 0, ran.err
    first = f"{data}, line 2: token id 260 is beyond the model's 260 ids; was this made with another tokenizer?"
    assert json.loads(ran.out)["skipped"] == {"lines": 6, "first": first}
    assert f"lines skipped: 6; the first: {first}" in ran.said


def test_prompts_at_fault_are_skipped_too(forerun: Call, tiny: str, tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "a"}\n{"prompt": 3}\n{oops\n{"prompt": "b"}')
    given = ("train", "answers", tiny, file, "-o", tmp_path / "a.jsonl", "--max-new-tokens", 2)

    assert "prompts.jsonl, line 2: " in forerun(*given).said
    ran = forerun(*given, "--skip-bad", "--json")
    assert ran.status == 0, ran.err
    told = json.loads(ran.out)
    assert (told["answers"], told["skipped"]["lines"]) == (2, 2)
    assert "prompts.jsonl, line 2" in told["skipped"]["first"]
    assert "lines skipped: 2; the first: " in ran.said
    plain = forerun(*given, "--skip-bad")
    assert plain.out.startswith("answers 2, ")
    assert "skipped" not in plain.out


def test_nothing_is_said_of_lines_where_none_is_at_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "data.jsonl"
    file.write_text('{"prompt_ids": [1], "answer_ids": [2]}\n')
    skipped = counting(True)
    read_data([file, file], None, (), skipped)

    assert skipped_as_dict(skipped) == {"skipped": {"lines": 0, "first": None}}
    assert skipped_as_dict(counting(False)) == {}
    assert capsys.readouterr().err == ""


def test_an_end_of_turns_where_decoding_does_not_stop_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, tokenizer = tmp_path / "data.jsonl", tiny_tokenizer()
    file.write_text('{"prompt": "a", "answer": "b"}\n')

    read_data([file], tokenizer, {END}, None)
    assert capsys.readouterr().err == ""
    read_data([file], tokenizer, {END + 1}, None)
    assert f"ends a turn with '<end>' ({END}), where decoding doesn't stop" in capsys.readouterr().err
