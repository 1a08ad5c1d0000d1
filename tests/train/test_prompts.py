"""Prompts out of a chat model's own template: what a user's turn is, which ones are kept, and going on after a kill."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from forerun import Engine, UnsupportedOption, load
from forerun.testing import END, tiny_model, tiny_tokenizer
from forerun.train.prompts import BARREN, WAVE, PromptOptions, sample_prompts, texts_of, user_turn

OPTIONS = PromptOptions(max_tokens=12, min_tokens=2, max_batch=4, top_k=8)


@pytest.fixture(scope="module")
def engine() -> Engine:
    """Its model ends a turn after a few letters, of which it knows some."""
    tokenizer = tiny_tokenizer()
    model = tiny_model("llama", vocab_size=len(tokenizer), num_hidden_layers=1)
    letters = tokenizer("abcde ").input_ids
    with torch.no_grad():
        for parameter in model.model.layers.parameters():
            parameter.zero_()
        model.model.embed_tokens.weight.fill_(1)
        model.lm_head.weight.fill_(-1)
        model.lm_head.weight[[*letters, END]] = 0
    return load(model, tokenizer)


def prompts(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def drawn(engine: Engine, file: Path, count: int, **given: Any) -> Iterator[int]:
    return sample_prompts(engine, file, count, given.pop("options", OPTIONS), **given)


def test_the_users_turn_is_between_what_the_template_puts_there() -> None:
    tokenizer = tiny_tokenizer()
    before, end = user_turn(tokenizer)
    assert (tokenizer.decode(before), end) == ("<user>", END)


@pytest.mark.parametrize("template", [None, "{{ messages[0].content | upper }}", "{{ messages[0].content }}"])
def test_a_template_without_a_users_turn_is_refused(template: str | None) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = template
    with pytest.raises(UnsupportedOption, match="bring a prompts file"):
        user_turn(tokenizer)


def test_a_model_without_a_tokenizer_is_refused() -> None:
    with pytest.raises(UnsupportedOption, match="this model has none; bring a prompts file"):
        user_turn(None)


def test_as_many_different_prompts_are_drawn_as_asked(engine: Engine, tmp_path: Path) -> None:
    assert list(drawn(engine, tmp_path / "p.jsonl", 6)) == list(range(7))
    found = prompts(tmp_path / "p.jsonl")
    assert len({one["prompt"].lower() for one in found}) == 6
    assert [one["attempt"] for one in found] == sorted(one["attempt"] for one in found)
    for one in found:
        assert one["prompt"].strip() == one["prompt"] != ""
        assert set(one["prompt"]) <= set("abcde ")
        assert len(one["prompt"]) < 12


def test_a_killed_run_goes_on_and_ends_as_if_uninterrupted(engine: Engine, tmp_path: Path) -> None:
    assert list(drawn(engine, tmp_path / "whole.jsonl", 9))[-1] == 9
    running = drawn(engine, tmp_path / "killed.jsonl", 9)
    while next(running) < 4:
        pass
    running.close()
    with (tmp_path / "killed.jsonl").open("a") as file:
        file.write('{"prompt": "half a')
    assert list(drawn(engine, tmp_path / "killed.jsonl", 9)) == [4, 5, 6, 7, 8, 9]
    assert prompts(tmp_path / "killed.jsonl") == prompts(tmp_path / "whole.jsonl")


def test_a_file_that_holds_enough_is_left_as_it_is(engine: Engine, tmp_path: Path) -> None:
    assert list(drawn(engine, tmp_path / "p.jsonl", 3))
    before = (tmp_path / "p.jsonl").read_text()
    assert list(drawn(engine, tmp_path / "p.jsonl", 2)) == [3]
    assert (tmp_path / "p.jsonl").read_text() == before


def test_excluded_texts_do_not_come_up(engine: Engine, tmp_path: Path) -> None:
    assert list(drawn(engine, tmp_path / "all.jsonl", 6))
    unwanted = [one["prompt"] for one in prompts(tmp_path / "all.jsonl")][:3]
    shouted = {f"  {text.upper()} " for text in unwanted}
    assert list(drawn(engine, tmp_path / "some.jsonl", 6, exclude=shouted))
    assert not {one["prompt"] for one in prompts(tmp_path / "some.jsonl")} & set(unwanted)


def test_another_seed_draws_other_prompts(engine: Engine, tmp_path: Path) -> None:
    for seed in (0, 1):
        options = PromptOptions(max_tokens=12, min_tokens=2, max_batch=4, top_k=8, seed=seed)
        assert list(drawn(engine, tmp_path / f"{seed}.jsonl", 5, options=options))
    assert [one["prompt"] for one in prompts(tmp_path / "0.jsonl")] != [
        one["prompt"] for one in prompts(tmp_path / "1.jsonl")
    ]


def test_turns_that_are_too_short_or_do_not_end_are_left_out(engine: Engine, tmp_path: Path) -> None:
    narrow = PromptOptions(min_tokens=4, max_tokens=7, max_batch=8, top_k=8)
    assert list(drawn(engine, tmp_path / "p.jsonl", 5, options=narrow))
    tokens = [len(tiny_tokenizer()(one["prompt"]).input_ids) for one in prompts(tmp_path / "p.jsonl")]
    assert max(tokens) <= 6


def test_a_model_that_has_nothing_new_to_say_is_given_up(engine: Engine, tmp_path: Path) -> None:
    never = PromptOptions(min_tokens=2, max_tokens=3, max_batch=2, temperature=0.01, top_k=1)
    sentence = (
        rf"the last {BARREN * WAVE * 2} attempts gave no new prompt, \d+ are there; does this model know its chat"
    )
    with pytest.raises(ValueError, match=sentence):
        list(drawn(engine, tmp_path / "p.jsonl", 500, options=never))


def test_the_user_turns_of_prompts_files_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"prompt": "one"}\n{"turns": ["two", "three"]}\n')
    (tmp_path / "b.jsonl").write_text('{"messages": [{"role": "user", "content": "four"}]}\n')
    assert {"one", "two", "three"} <= texts_of([tmp_path / "a.jsonl", tmp_path / "b.jsonl"])


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"temperature": 0}, "temperature must be above 0, or all prompts are the same; got 0"),
        ({"min_tokens": 0}, r"min_tokens must be in 1..128 \(max_tokens\), got 0"),
        ({"min_tokens": 9, "max_tokens": 8}, r"min_tokens must be in 1..8 \(max_tokens\), got 9"),
    ],
)
def test_options_out_of_range_are_refused(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        PromptOptions(**given)


def test_asking_for_no_prompts_is_refused(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the number of prompts must be at least 1, got 0"):
        list(drawn(engine, tmp_path / "p.jsonl", 0))
