"""Prompts out of a chat model's own template: what a user's turn is, which ones are kept, and going on after a kill."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from forerun import Engine, UnsupportedOption, load
from forerun.testing import END, tiny_model, tiny_tokenizer
from forerun.train.data.prompts import BARREN, WAVE, PromptOptions, read_openings, sample_prompts, texts_of, user_turn

from ..templates import CHATML, GEMMA, LLAMA2, LLAMA3, Family, tokenizer_of

OPTIONS = PromptOptions(max_tokens=12, min_tokens=2, max_batch=4, top_k=8)
OPENINGS = ("Why ", "XY", "")


@pytest.fixture(scope="module")
def engine() -> Engine:
    """Its model ends a turn after a few letters, of which it knows some."""
    tokenizer = tiny_tokenizer()
    return saying(tokenizer, [*tokenizer("abcde ").input_ids, END])


def saying(tokenizer: Any, tokens: list[int]) -> Engine:
    """A model that says these tokens, each as often as the others."""
    model = tiny_model("llama", vocab_size=len(tokenizer), num_hidden_layers=1)
    with torch.no_grad():
        for parameter in model.model.layers.parameters():
            parameter.zero_()
        model.model.embed_tokens.weight.fill_(1)
        model.lm_head.weight.fill_(-1)
        model.lm_head.weight[tokens] = 0
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


def test_turns_take_the_openings_in_turn(engine: Engine, tmp_path: Path) -> None:
    options = replace(OPTIONS, openings=OPENINGS)
    assert list(drawn(engine, tmp_path / "p.jsonl", 9, options=options))[-1] == 9
    found = prompts(tmp_path / "p.jsonl")
    assert {one["attempt"] % 3 for one in found} == {0, 1, 2}
    for one in found:
        opening = OPENINGS[one["attempt"] % 3]
        assert one["prompt"].startswith(opening)
        assert set(one["prompt"].removeprefix(opening)) <= set("abcde ")


def test_the_model_goes_on_after_the_opening(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[int]] = []
    each = Engine.each

    def noting(self: Engine, requests: Any, **given: Any) -> Any:
        asked.extend(ids for ids, _ in requests)
        return each(self, requests, **given)

    monkeypatch.setattr(Engine, "each", noting)
    assert list(drawn(engine, tmp_path / "p.jsonl", 1, options=replace(OPTIONS, openings=("Why ", ""))))
    assert [tiny_tokenizer().decode(ids) for ids in asked[:3]] == ["<user>Why ", "<user>", "<user>Why "]


def test_without_openings_a_turn_is_what_it_was_with_an_empty_one(engine: Engine, tmp_path: Path) -> None:
    assert list(drawn(engine, tmp_path / "none.jsonl", 5))
    assert list(drawn(engine, tmp_path / "empty.jsonl", 5, options=replace(OPTIONS, openings=("",))))
    assert prompts(tmp_path / "none.jsonl") == prompts(tmp_path / "empty.jsonl")


def test_a_killed_run_goes_on_with_the_opening_that_is_next(engine: Engine, tmp_path: Path) -> None:
    options = replace(OPTIONS, openings=OPENINGS)
    assert list(drawn(engine, tmp_path / "whole.jsonl", 9, options=options))
    running = drawn(engine, tmp_path / "killed.jsonl", 9, options=options)
    while next(running) < 5:
        pass
    running.close()
    assert list(drawn(engine, tmp_path / "killed.jsonl", 9, options=options)) == [5, 6, 7, 8, 9]
    assert prompts(tmp_path / "killed.jsonl") == prompts(tmp_path / "whole.jsonl")


def test_an_opening_counts_neither_as_a_short_turn_nor_as_a_long_one(engine: Engine, tmp_path: Path) -> None:
    options = PromptOptions(min_tokens=4, max_tokens=7, max_batch=8, top_k=8, openings=("A LONG OPENING ",))
    assert list(drawn(engine, tmp_path / "p.jsonl", 5, options=options))
    own = [one["prompt"].removeprefix("A LONG OPENING") for one in prompts(tmp_path / "p.jsonl")]
    assert max(map(len, own)) <= len(" ") + 6


def test_an_excluded_text_is_known_with_its_opening(engine: Engine, tmp_path: Path) -> None:
    options = replace(OPTIONS, openings=("Why ",))
    assert list(drawn(engine, tmp_path / "all.jsonl", 4, options=options))
    unwanted = {one["prompt"].upper() for one in prompts(tmp_path / "all.jsonl")}
    assert list(drawn(engine, tmp_path / "some.jsonl", 4, options=options, exclude=unwanted))
    assert not {one["prompt"].upper() for one in prompts(tmp_path / "some.jsonl")} & unwanted


def test_the_blank_after_an_opening_stays_where_a_tokenizer_drops_leading_blanks(tmp_path: Path) -> None:
    words = {"<end>": 0, "<user>": 1, "\u2581say": 2, "\u2581so": 3, "\u2581or": 4, "\u2581not": 5}
    inner = Tokenizer(models.WordLevel(words, unk_token="\u2581say"))
    inner.pre_tokenizer = pre_tokenizers.Metaspace()
    inner.decoder = decoders.Metaspace()
    inner.add_special_tokens(["<end>", "<user>"])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token="<end>", chat_template="<user>{{ messages[0].content }}<end>"
    )
    options = PromptOptions(min_tokens=1, max_tokens=6, top_k=0, top_p=1.0, max_batch=4, openings=("say",))
    assert list(drawn(saying(tokenizer, [0, 3, 4, 5]), tmp_path / "p.jsonl", 3, options=options))
    for one in prompts(tmp_path / "p.jsonl"):
        assert one["prompt"].split()[0] == "say"
        assert set(one["prompt"].split()[1:]) <= {"so", "or", "not"}


def test_openings_are_read_line_by_line_as_they_stand(tmp_path: Path) -> None:
    (tmp_path / "o.txt").write_text("Who was\n\nSum up:  \n   \nWhy \n")
    assert read_openings(tmp_path / "o.txt") == ("Who was", "Sum up:  ", "Why ")


def test_a_file_without_openings_is_refused(tmp_path: Path) -> None:
    (tmp_path / "o.txt").write_text("\n  \n")
    with pytest.raises(ValueError, match=r"o.txt holds no opening; write one beginning of a user's turn a line"):
        read_openings(tmp_path / "o.txt")
    with pytest.raises(ValueError, match=r"can't read the openings file .*none.txt"):
        read_openings(tmp_path / "none.txt")
    (tmp_path / "o.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"can't read the openings file .*o.txt"):
        read_openings(tmp_path / "o.txt")


def test_the_openings_of_the_benchmarks_are_different_ones() -> None:
    found = read_openings(Path(__file__).parents[3] / "benchmarks" / "adapters" / "openings.txt")
    assert len(set(found)) == len(found) == 60


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
        ({"openings": ()}, "openings is empty; leave it out, or name at least one beginning of a user's turn"),
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


def test_openings_may_hold_what_others_take_for_the_end_of_a_line(tmp_path: Path) -> None:
    (tmp_path / "o.txt").write_bytes("\ufeffWhy \r\nOne\u2028two\x85 \n".encode())
    assert read_openings(tmp_path / "o.txt") == ("Why ", "One\u2028two\x85 ")


@pytest.mark.parametrize(("family", "end"), [(GEMMA, "<end_of_turn>"), (LLAMA3, "<|eot_id|>"), (CHATML, "<|im_end|>")])
def test_a_users_turn_ends_as_the_template_ends_it(family: Family, end: str) -> None:
    tokenizer = tokenizer_of(family)
    before, token = user_turn(tokenizer)

    assert tokenizer.convert_ids_to_tokens(token) == end
    assert before.count(tokenizer.bos_token_id) == bool(family.bos)


def test_a_template_that_ends_turns_with_text_or_refuses_is_refused() -> None:
    with pytest.raises(UnsupportedOption, match="ends its turn with no token of its own"):
        user_turn(tokenizer_of(LLAMA2))
    with pytest.raises(ValueError, match="the chat template can't be applied to these messages"):
        user_turn(tokenizer_of(Family("{{ raise_exception('no') }}", "<eos>", "<eos>")))


def test_prompts_from_elsewhere_need_no_number_of_an_attempt(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text('{"prompt": "x", "attempt": null}\n{"prompt": "y", "attempt": "first"}')
    assert list(drawn(engine, tmp_path / "p.jsonl", 3))[-1] == 3
    assert [one["prompt"] for one in prompts(tmp_path / "p.jsonl")][:2] == ["x", "y"]
