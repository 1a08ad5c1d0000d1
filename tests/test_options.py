"""The options of a request."""

from __future__ import annotations

import pytest
from transformers import MinLengthLogitsProcessor

from forerun.core import Sampling
from forerun.errors import UnsupportedOption
from forerun.options import Options, options_from


def test_the_defaults_are_greedy_decoding() -> None:
    assert Options().sampling() == Sampling()
    assert Options().stop_strings() == ()
    assert Options().logprob_options() is None


def test_an_unknown_option_lists_the_known_ones() -> None:
    with pytest.raises(
        UnsupportedOption, match=r"unknown option 'temprature'; known: max_new_tokens, temperature, top_k"
    ):
        options_from({"temprature": 1})


def test_sampling_options_reach_the_sampling() -> None:
    given = {"temperature": 0.5, "top_k": 3, "top_p": 0.9, "min_p": 0.1, "repetition_penalty": 1.1}
    more = {"frequency_penalty": 0.2, "presence_penalty": 0.3, "no_repeat_ngram": 2}
    assert options_from({**given, **more}).sampling() == Sampling(**given, **more)


def test_processors_reach_the_sampling() -> None:
    processor = MinLengthLogitsProcessor(3, 2)
    assert options_from({"processors": [processor]}).sampling().processors == (processor,)


@pytest.mark.parametrize(
    ("option", "value"), [("temperature", -1), ("top_p", 0), ("top_p", 1.5), ("min_p", 2), ("top_k", -1)]
)
def test_a_value_out_of_range_is_named(option: str, value: float) -> None:
    with pytest.raises(ValueError, match=rf"{option} must be .*, got {value}"):
        options_from({option: value}).sampling()


def test_one_stop_string_may_stand_alone() -> None:
    assert options_from({"stop": "x"}).stop_strings() == ("x",)
    assert options_from({"stop": ["x", "y"]}).stop_strings() == ("x", "y")


def test_logprob_options() -> None:
    chosen = options_from({"logprobs": 2, "processed_logprobs": True}).logprob_options()
    assert chosen is not None
    assert (chosen.top, chosen.processed) == (2, True)


def test_logprobs_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="logprobs must be at least 0, got -1"):
        options_from({"logprobs": -1}).logprob_options()


def test_processed_logprobs_alone_are_refused() -> None:
    with pytest.raises(UnsupportedOption, match="needs logprobs"):
        options_from({"processed_logprobs": True}).logprob_options()


def test_stop_tokens_are_none_or_several() -> None:
    assert Options().stop_token_ids == ()
    assert options_from({"stop_token_ids": [3, 4]}).stop_tokens(5) == {3, 4}
    for token in (-1, 5):
        with pytest.raises(ValueError, match=rf"stop_token_ids must be in 0..4, got {token}"):
            options_from({"stop_token_ids": [token]}).stop_tokens(5)
