from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from forerun.engine.prompts.questions import Question, has_chat_template, questions_in, read_questions
from forerun.errors import UnsupportedOption
from forerun.jsonl import Skipped
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


def test_a_chat_goes_on_after_its_answers() -> None:
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


@pytest.mark.parametrize("odd", ["\x85", "\u2028", "\u2029"])
def test_a_prompt_may_hold_what_others_take_for_the_end_of_a_line(tmp_path: Path, odd: str) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_bytes(f'\ufeff{{"prompt": "one{odd}two"}}\r\n\r\n{{"turns": ["a", "b{odd}"]}}'.encode())

    assert read_questions(file) == [Question((f"one{odd}two",)), Question(("a", f"b{odd}"))]


def test_text_parts_are_joined_and_other_parts_refused(tmp_path: Path) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert read(tmp_path, {"messages": [{"role": "user", "content": parts}]}) == [Question(("ab",))]
    for content in ([*parts, {"type": "image", "url": "x"}], [], ["a"]):
        with pytest.raises(ValueError, match='line 1: "content" must hold text'):
            read(tmp_path, {"messages": [{"role": "user", "content": content}]})


def test_a_question_comes_with_its_line_and_lines_at_fault_are_left_out_on_request(tmp_path: Path) -> None:
    file, skipped = tmp_path / "prompts.jsonl", Skipped()
    file.write_text('{oops\n{"prompt": "a", "id": 3}\n{"prompt": 4}\n')
    ((line, entry, question),) = questions_in(file, skipped)

    assert (line.number, entry, question) == (2, {"prompt": "a", "id": 3}, Question(("a",)))
    assert skipped.count == 2
    file.write_text("{oops\n")
    with pytest.raises(
        ValueError, match=r"holds no prompt \(1 lines were skipped, the first: .*line 1: not valid JSON"
    ):
        list(questions_in(file, Skipped()))


def test_what_can_not_be_asked_is_named_by_its_line(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    fine, several = read(tmp_path, {"prompt": "a"}, {"turns": ["b", "c"]})

    assert fine.ids((), False, tokenizer) == tokenizer("a").input_ids
    with pytest.raises(UnsupportedOption, match=r"prompts.jsonl, line 2: several messages need a chat template"):
        several.ids((), False, tokenizer)
    with pytest.raises(UnsupportedOption, match=r"prompts.jsonl, line 1: .* needs a tokenizer"):
        fine.ids((), False, None)
    with pytest.raises(UnsupportedOption, match=r"^several messages"):
        Question(("b", "c")).ids((), False, tokenizer)


def test_where_a_question_is_from_does_not_make_it_another(tmp_path: Path) -> None:
    assert read(tmp_path, {"prompt": "a"}) == [Question(("a",))]
