"""The tokenizer of a GGUF file: every key that changes tokens or the end of a text is applied, or refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from forerun.errors import UnsupportedModel
from forerun.models.gguf.header import Header
from forerun.models.gguf.tokenizer import ends_of
from forerun.models.loading.load import Loaded, open_model
from forerun.testing import tiny_model

from .tiny_gguf import write_model

END, TURN, MORE, TH = 256, 257, 258, 259


def opened(tmp_path: Path, **tokenizer: Any) -> Loaded:
    return open_model(write_model(tmp_path / "m.gguf", tiny_model("llama", vocab_size=260), tokenizer=tokenizer))


def pieces(loaded: Loaded, text: str) -> list[str]:
    return [loaded.tokenizer.decode([token]) for token in loaded.tokenizer.encode(text)]


@pytest.mark.parametrize(
    ("keys", "ends"),
    [
        ({}, {END}),
        ({"eot_token_id": TURN}, {END, TURN}),
        ({"eot_token_id": TURN, "eom_token_id": MORE}, {END, TURN, MORE}),
        ({"eos_token_id": None, "eot_token_id": TURN}, {TURN}),
        ({"eos_token_ids": [END, MORE]}, {END, MORE}),
    ],
)
def test_ends_of_text_of_turn_and_of_message_all_end_a_text(
    tmp_path: Path, keys: dict[str, Any], ends: set[int]
) -> None:
    assert opened(tmp_path, **keys).eos == ends


def header(tokens: list[str], template: str, **keys: Any) -> Header:
    types = [3] * len(tokens)
    about = {"tokens": tokens, "token_type": types, **keys}
    named = {f"tokenizer.ggml.{key}": value for key, value in about.items()}
    return Header("m.gguf", "llama", {**named, "tokenizer.chat_template": template}, (), {})


def test_an_old_file_ends_a_turn_as_its_template_does() -> None:
    tokens = ["<s>", "<|im_end|>", "<end_of_turn>", "<|eot_id|>"]
    assert ends_of(header(tokens, "{{ x }}<|im_end|>", eos_token_id=0)) == [0, 1]
    assert ends_of(header(tokens, "{{ x }}", eos_token_id=0)) == [0]
    assert ends_of(header(tokens, "{{ x }}<|im_end|>", eos_token_id=0, eot_token_id=2)) == [0, 2]


@pytest.mark.parametrize(("said", "begun"), [(True, True), (False, False), (None, False)])
def test_a_text_begins_with_the_first_token_where_the_file_says_so(
    tmp_path: Path, said: bool | None, begun: bool
) -> None:
    ids = opened(tmp_path, bos_token_id=MORE, add_bos_token=said).tokenizer.encode("th")
    assert ids == [MORE, TH] if begun else ids == [TH]


@pytest.mark.parametrize(("pre", "begun"), [("llama-bpe", True), ("tekken", True), ("qwen2", False)])
def test_llama_3s_texts_begin_so_unless_the_file_says_otherwise(tmp_path: Path, pre: str, begun: bool) -> None:
    assert (opened(tmp_path, bos_token_id=MORE, pre=pre).tokenizer.encode("th") == [MORE, TH]) == begun


def test_a_text_ends_with_the_last_token_where_the_file_says_so(tmp_path: Path) -> None:
    assert opened(tmp_path, add_eos_token=True).tokenizer.encode("th") == [TH, END]


@pytest.mark.parametrize(("pre", "whole"), [("llama-bpe", True), ("smollm", False), ("gpt-2", False), (None, False)])
def test_llama_3_takes_whole_words_before_merges(tmp_path: Path, pre: str | None, whole: bool) -> None:
    tokenizer = opened(tmp_path, pre=pre).tokenizer
    assert tokenizer.backend_tokenizer.model.ignore_merges == whole


@pytest.mark.parametrize(("pre", "groups"), [("smollm", ["1", "2", "3"]), ("gpt-2", ["123"]), ("default", ["123"])])
def test_digits_stand_alone_where_the_vocabulary_was_learnt_so(tmp_path: Path, pre: str, groups: list[str]) -> None:
    backend = opened(tmp_path, pre=pre).tokenizer.backend_tokenizer
    assert [word for word, _ in backend.pre_tokenizer.pre_tokenize_str("123")] == groups


def test_an_unknown_way_to_split_a_text_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(
        UnsupportedModel, match=r"sets tokenizer\.ggml\.pre to 'deepseek-coder': the known ways .*gpt-2, "
    ):
        opened(tmp_path, pre="deepseek-coder")


@pytest.mark.parametrize("space", [True, False, None])
def test_a_sentencepiece_vocabulary_puts_a_space_first_unless_told_otherwise(
    tmp_path: Path, space: bool | None
) -> None:
    words = ["<unk>", "<s>", "</s>", "▁", "h", "i", "▁hi", "hi", *(f"<{index}>" for index in range(8, 260))]
    types = [2, 3, 3, *[1] * 257]
    scores = [0.0, 0.0, 0.0, -9.0, -9.0, -9.0, -1.0, -2.0, *[-99.0] * 252]
    keys = {"model": "llama", "tokens": words, "scores": scores, "token_type": types, "merges": None, "bos_token_id": 1}
    tokenizer = opened(tmp_path, **keys, eos_token_id=2, unknown_token_id=0, add_space_prefix=space).tokenizer
    assert tokenizer.encode("hi") == ([1, 7] if space is False else [1, 6])
    assert tokenizer.decode(tokenizer.encode("hi"), skip_special_tokens=True) == "hi"
    if space is False:
        assert tokenizer.decode([6]) == " hi"


@pytest.mark.parametrize("key", ["add_sep_token", "remove_extra_whitespaces", "made_up"])
def test_a_key_that_can_not_be_applied_is_refused_by_name(tmp_path: Path, key: str) -> None:
    with pytest.raises(UnsupportedModel, match=rf"m\.gguf sets tokenizer\.ggml\.{key} to True: "):
        opened(tmp_path, **{key: True})


def test_ids_for_other_tasks_are_no_hindrance(tmp_path: Path) -> None:
    keys = {"fim_pre_token_id": MORE, "mask_token_id": MORE, "seperator_token_id": MORE, "add_sep_token": False}
    assert opened(tmp_path, **keys).eos == {END}
