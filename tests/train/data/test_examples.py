"""Examples: the forms of lines, what is learnt of each, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from forerun.jsonl import Skipped
from forerun.testing import tiny_tokenizer
from forerun.train.data.examples import Example, read_examples, split

from ..templates import CHATML, GEMMA, LLAMA3, chat, shown, tokenizer_of


def written(folder: Path, *entries: dict[str, Any]) -> Path:
    file = folder / "data.jsonl"
    file.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return file


def plain_tokenizer() -> Any:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = None
    return tokenizer


def learnt(example: Example, tokenizer: Any) -> str:
    return str(tokenizer.decode(example.ids[example.start :], skip_special_tokens=True))


def test_of_a_text_all_but_the_first_token_is_learnt(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    (example,) = read_examples(written(tmp_path, {"text": "a b c"}), tokenizer)

    assert example == Example(tuple(tokenizer("a b c").input_ids), 1)


def test_of_a_chat_the_last_answer_and_its_end_are_learnt(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    messages = [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "two"},
        {"role": "user", "content": "three"},
        {"role": "assistant", "content": "four"},
    ]
    (example,) = read_examples(written(tmp_path, {"messages": messages}), tokenizer)

    assert learnt(example, tokenizer) == "four"
    assert example.ids[-1] == tokenizer.eos_token_id
    prompt = tokenizer.apply_chat_template(messages[:-1], add_generation_prompt=True, return_dict=True)["input_ids"]
    assert list(example.ids[: example.start]) == prompt


@pytest.mark.parametrize("chat", [False, True])
def test_a_prompt_and_its_answer_go_through_the_template_where_there_is_one(tmp_path: Path, chat: bool) -> None:
    tokenizer = tiny_tokenizer() if chat else plain_tokenizer()
    (example,) = read_examples(written(tmp_path, {"prompt": "one", "answer": "two"}), tokenizer)

    assert learnt(example, tokenizer) == "two"
    shown = tokenizer.decode(example.ids[: example.start])
    assert ("<user>" in shown) == chat


def test_token_ids_are_taken_as_they_are_and_need_no_tokenizer(tmp_path: Path) -> None:
    file = written(tmp_path, {"prompt_ids": [3, 4], "answer_ids": [5], "answer": "x", "prompt": "y"})

    assert read_examples(file, None) == [Example((3, 4, 5), 2)]


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"texts": "a"}, "got 'texts'"),
        ({}, "an empty object"),
        ({"text": ""}, '"text" must hold text'),
        ({"prompt_ids": [1], "answer_ids": []}, "nothing to learn"),
        ({"prompt_ids": [], "answer_ids": [1]}, "nothing to learn"),
        ({"prompt_ids": [1], "answer_ids": [-1]}, "whole numbers"),
        ({"messages": [{"role": "user", "content": "a"}]}, "must be the assistant's"),
        ({"messages": "a"}, "must be a list"),
        ({"messages": [{"role": "assistant", "content": "a"}]}, "no chat template"),
        ({"prompt_ids": [1] * 6, "answer_ids": [2] * 5}, "has 11 tokens and at most 10 fit"),
    ],
)
def test_a_line_at_fault_is_named(tmp_path: Path, entry: dict[str, Any], reason: str) -> None:
    file = written(tmp_path, {"prompt_ids": [1], "answer_ids": [2]}, entry)

    with pytest.raises(ValueError, match=f"line 2: .*{reason}"):
        read_examples(file, plain_tokenizer(), max_length=10)


def test_text_without_a_tokenizer_and_an_empty_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="text needs a tokenizer"):
        read_examples(written(tmp_path, {"text": "a"}), None)
    with pytest.raises(ValueError, match="holds no example"):
        read_examples(written(tmp_path), tiny_tokenizer())


@pytest.mark.parametrize("family", [GEMMA, LLAMA3, CHATML], ids=["gemma", "llama 3", "chatml"])
@pytest.mark.parametrize(
    "entry",
    [
        {"messages": chat("one", "two")},
        {"conversations": [{"from": "human", "value": "one"}, {"from": "gpt", "value": "two"}]},
        {"instruction": "one", "input": "", "output": "two"},
        {"prompt": chat("one"), "completion": [{"role": "assistant", "content": "two"}]},
        {"prompt": "one", "answer": "two"},
    ],
    ids=["messages", "sharegpt", "alpaca", "trl", "answer"],
)
def test_every_form_of_a_chat_is_learnt_to_the_end_of_the_templates_turn(
    tmp_path: Path, family: Any, entry: dict[str, Any]
) -> None:
    tokenizer = tokenizer_of(family)
    (example,) = read_examples(written(tmp_path, entry), tokenizer)

    assert shown(tokenizer, example.ids[example.start :]) == f"two{family.end}"
    prompt = tokenizer.apply_chat_template(chat("one"), add_generation_prompt=True, return_dict=True)["input_ids"]
    assert list(example.ids[: example.start]) == prompt
    assert list(example.ids).count(tokenizer.bos_token_id) == bool(family.bos)


@pytest.mark.parametrize("entry", [{"text": "<bos>a b"}, {"prompt": "<bos>a", "completion": " b"}], ids=["text", "trl"])
def test_a_text_that_begins_with_the_beginning_of_sequence_has_one(tmp_path: Path, entry: dict[str, Any]) -> None:
    tokenizer = tokenizer_of(GEMMA)
    (example,) = read_examples(written(tmp_path, entry), tokenizer)

    end = [] if "text" in entry else [tokenizer.eos_token_id]
    assert list(example.ids) == [*tokenizer("a b").input_ids, *end]


def test_a_completion_goes_on_from_its_prompt_without_a_template(tmp_path: Path) -> None:
    tokenizer = tokenizer_of(CHATML)
    entries = ({"prompt": "a", "completion": text} for text in (" b", " b<|endoftext|>"))
    one, ended = read_examples(written(tmp_path, *entries), tokenizer)

    assert one == ended
    assert shown(tokenizer, one.ids) == "a b<|endoftext|>"
    assert shown(tokenizer, one.ids[one.start :]) == " b<|endoftext|>"


def test_of_the_first_examples_no_more_is_read(tmp_path: Path) -> None:
    file = written(tmp_path, {"prompt_ids": [1], "answer_ids": [2]}, {"oops": 1})

    assert read_examples(file, None, limit=1) == [Example((1, 2), 1)]


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"prompt_ids": [1, 2], "answer_ids": [97]}, "token id 97 is beyond the model's 97 ids"),
        ({"prompt_ids": [97, 2], "answer_ids": [3]}, "token id 97 is beyond the model's 97 ids"),
        ({"prompt_ids": [1], "answer_ids": [3]}, "the prompt has 1 tokens and at least 2 are needed"),
    ],
)
def test_what_the_model_can_not_read_is_named_by_its_line(tmp_path: Path, entry: dict[str, Any], reason: str) -> None:
    file = written(tmp_path, {"prompt_ids": [1, 2], "answer_ids": [96]}, entry)

    with pytest.raises(ValueError, match=f"line 2: {reason}"):
        read_examples(file, None, vocab_size=97, least_prompt=2)


def test_lines_at_fault_are_left_out_and_counted_on_request(tmp_path: Path) -> None:
    good = {"messages": chat("one", "two")}
    bad = ({"messages": chat("one", "two", system="s")}, {"messages": [{"content": "a"}]}, {"text": ""})
    file, skipped = written(tmp_path, good, *bad, good), Skipped()

    assert len(read_examples(file, tokenizer_of(GEMMA), skipped=skipped)) == 2
    assert skipped.count == 3
    assert skipped.first.startswith(f"{file}, line 2: the chat template can't be applied")
    with pytest.raises(ValueError, match=r"holds no example.*\(3 lines were skipped, the first: .*line 1: "):
        read_examples(written(tmp_path, *bad), tokenizer_of(GEMMA), skipped=Skipped())


def examples(count: int) -> list[Example]:
    return [Example((1, number // 2), 1) for number in range(count)]


def test_a_part_is_held_out_and_equal_texts_stay_on_one_side() -> None:
    learn, out = split(examples(40), 0.25, seed=3)

    assert len(out) == 10
    assert not {one.ids for one in learn} & {one.ids for one in out}
    assert sorted([*learn, *out], key=lambda one: one.ids) == examples(40)


def test_the_seed_decides_which_part_is_held_out() -> None:
    assert split(examples(40), 0.25, seed=3) == split(examples(40), 0.25, seed=3)
    assert split(examples(40), 0.25, seed=3) != split(examples(40), 0.25, seed=4)


def test_there_is_always_one_held_out_and_one_to_learn_from() -> None:
    for part in (0.001, 0.999):
        learn, out = split(examples(4), part, seed=0)
        assert learn
        assert out
    with pytest.raises(ValueError, match="two different"):
        split(examples(2), 0.5, seed=0)
    with pytest.raises(ValueError, match="above 0 and below 1"):
        split(examples(4), 1, seed=0)
