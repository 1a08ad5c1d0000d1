from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from forerun.errors import UnsupportedOption
from forerun.questions import Question, has_chat_template, read_questions
from forerun.testing import tiny_tokenizer


def read(tmp_path: Path, *entries: Any) -> list[Question]:
    file = tmp_path / "prompts.jsonl"
    file.write_text("\n".join(entry if isinstance(entry, str) else json.dumps(entry) for entry in entries))
    return read_questions(file)


def test_the_three_kinds_of_lines_are_read(tmp_path: Path) -> None:
    system = {"role": "system", "content": "be brief"}
    questions = read(
        tmp_path,
        {"prompt": "a"},
        "",
        {"messages": [system, {"role": "user", "content": "b"}]},
        {"question_id": 81, "category": "writing", "turns": ["c", "d"]},
    )

    assert questions == [Question(("a",)), Question(("b",), (system,)), Question(("c", "d"))]


@pytest.mark.parametrize(
    "entry",
    [
        "{",
        "3",
        "[]",
        {},
        {"prompt": "a", "turns": ["b"]},
        {"prompt": ""},
        {"prompt": 3},
        {"turns": "a"},
        {"turns": []},
        {"turns": ["a", 3]},
        {"messages": []},
        {"messages": ["a"]},
        {"messages": [{"role": "user", "content": "a", "name": "b"}]},
        {"messages": [{"role": "user", "content": None}]},
        {"messages": [{"role": "system", "content": "a"}]},
    ],
)
def test_a_bad_line_is_named_by_its_number(tmp_path: Path, entry: Any) -> None:
    with pytest.raises(ValueError, match=r"prompts.jsonl, line 3: "):
        read(tmp_path, {"prompt": "fine"}, "  ", entry)


def test_a_file_that_holds_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")

    with pytest.raises(ValueError, match="can't read the prompts file"):
        read_questions(tmp_path / "binary")
    with pytest.raises(ValueError, match="holds no prompt"):
        read(tmp_path, "")


def test_a_chat_goes_on_behind_its_answers() -> None:
    question = Question(("a", "b"), ({"role": "system", "content": "s"},))

    assert question.prompt((), chat=True) == [{"role": "system", "content": "s"}, {"role": "user", "content": "a"}]
    assert question.prompt(("answer",), chat=True) == [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "answer"},
        {"role": "user", "content": "b"},
    ]


def test_without_a_template_only_a_single_text_can_be_asked() -> None:
    assert Question(("a",)).prompt((), chat=False) == "a"
    for question in (Question(("a", "b")), Question(("a",), ({"role": "system", "content": "s"},))):
        with pytest.raises(UnsupportedOption, match="need a chat template"):
            question.prompt((), chat=False)


def test_a_tokenizer_says_whether_it_has_a_template() -> None:
    bare = tiny_tokenizer()
    bare.chat_template = None

    assert has_chat_template(tiny_tokenizer())
    assert not has_chat_template(bare)
    assert not has_chat_template(None)
