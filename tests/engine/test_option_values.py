"""What callers write for an option, and what is made of it."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LogitsProcessorList, MinLengthLogitsProcessor, SuppressTokensLogitsProcessor

from forerun.engine.option_values import KINDS, value_of
from forerun.engine.options import Options

WHOLE = ["max_new_tokens", "top_k", "no_repeat_ngram", "seed", "logprobs"]
NUMBERS = ["temperature", "top_p", "min_p", "repetition_penalty", "frequency_penalty", "presence_penalty"]
SWITCHES = ["ignore_eos", "processed_logprobs", "speculate", "do_sample", "generation_config"]


def test_every_option_has_a_kind() -> None:
    assert {*KINDS} == {field.name for field in fields(Options)}


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("value", [4, 4.0, np.int64(4), np.float32(4)])
def test_a_whole_number_may_be_written_as_any_number(name: str, value: Any) -> None:
    found = value_of(name, value)

    assert (found, type(found)) == (4, int)


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("value", [4.5, "4", float("inf"), float("nan"), [4]])
def test_what_is_no_whole_number_is_named(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"{name} must be a whole number, got "):
        value_of(name, value)


@pytest.mark.parametrize("name", [name for name in WHOLE if name != "logprobs"])
def test_a_switch_is_no_whole_number(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be a whole number, got True"):
        value_of(name, True)


def test_logprobs_may_be_switched_as_in_openais_chats() -> None:
    assert value_of("logprobs", True) == 0
    assert value_of("logprobs", False) is None


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [1, 1.0, np.float64(1), np.int32(1)])
def test_a_number_may_be_of_any_kind(name: str, value: Any) -> None:
    found = value_of(name, value)

    assert (found, type(found)) == (1.0, float)


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", ["0.5", True, [0.5], 1j])
def test_what_is_no_number_is_named(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"{name} must be a number, got "):
        value_of(name, value)


@pytest.mark.parametrize("name", SWITCHES)
def test_a_switch_may_be_written_as_zero_or_one(name: str) -> None:
    assert [value_of(name, value) for value in (True, False, 1, 0)] == [True, False, True, False]
    for value in ("yes", 2, 0.0, []):
        with pytest.raises(ValueError, match=rf"{name} must be True or False, got "):
            value_of(name, value)


def test_one_text_or_several_end_a_text() -> None:
    assert value_of("stop", "a") == ("a",)
    assert value_of("stop", ["a", "b"]) == ("a", "b")
    assert value_of("stop", ()) == ()


@pytest.mark.parametrize("value", [3, b"a", {"a": 1}, ["a", None], [3]])
def test_what_is_no_text_cannot_end_one(value: Any) -> None:
    with pytest.raises(ValueError, match=r"stop must (be|hold) .*texts.*, got "):
        value_of("stop", value)


@pytest.mark.parametrize("value", [[3, 4], (3.0, 4.0), np.array([3, 4]), torch.tensor([3, 4]), range(3, 5)])
def test_tokens_may_come_in_any_list(value: Any) -> None:
    assert value_of("stop_token_ids", value) == (3, 4)


def test_one_token_may_stand_alone() -> None:
    assert value_of("stop_token_ids", 3) == (3,)


@pytest.mark.parametrize("value", ["3", [3.5], [None], [[3]], {"3": 3}, 3.5])
def test_what_is_no_token_is_named(value: Any) -> None:
    with pytest.raises(ValueError, match=r"stop_token_ids must be .*, got "):
        value_of("stop_token_ids", value)


def test_one_processor_may_stand_alone() -> None:
    one, other = MinLengthLogitsProcessor(3, 2), SuppressTokensLogitsProcessor([1])

    assert value_of("processors", one) == (one,)
    assert value_of("processors", LogitsProcessorList([one, other])) == (one, other)
    assert value_of("processors", [one, [other]]) == (one, [other])


def test_what_is_no_processor_is_named() -> None:
    with pytest.raises(ValueError, match="processors must be a function of ids and scores, or a list of such, got 5"):
        value_of("processors", 5)
