"""The options of a request."""

from __future__ import annotations

import pytest
from transformers import MinLengthLogitsProcessor

from forerun.core.values import Sampling
from forerun.engine.generation_config.defaults import CheckpointDefaults
from forerun.engine.options import Options, applied_options, given_options, options_from
from forerun.errors import UnsupportedOption


def sampling(options: Options) -> Sampling:
    return options.sampling(options.classified())


def test_the_defaults_are_greedy_decoding() -> None:
    assert sampling(Options()) == Sampling()
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
    assert sampling(options_from({**given, **more})) == Sampling(**given, **more)


def test_processors_reach_the_sampling() -> None:
    processor = MinLengthLogitsProcessor(3, 2)
    assert sampling(options_from({"processors": [processor]})).processors == (processor,)


@pytest.mark.parametrize(
    ("option", "value"), [("temperature", -1), ("top_p", 0), ("top_p", 1.5), ("min_p", 2), ("top_k", -1)]
)
def test_a_value_out_of_range_is_named(option: str, value: float) -> None:
    with pytest.raises(ValueError, match=rf"{option} must be .*, got {value}"):
        sampling(options_from({option: value}))


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


def test_none_stands_for_an_option_that_is_not_given() -> None:
    assert given_options(dict.fromkeys(Options.__slots__)) == {}
    assert options_from(dict.fromkeys(Options.__slots__)) == Options()


def test_values_come_in_the_types_of_the_options() -> None:
    given = options_from({"max_new_tokens": 4.0, "logprobs": True, "top_p": 1, "stop": "x", "ignore_eos": 1})

    assert (given.max_new_tokens, given.logprobs, given.stop, given.ignore_eos) == (4, 0, ("x",), True)
    assert options_from({"logprobs": False}).logprob_options() is None


def test_a_value_of_another_type_is_named() -> None:
    with pytest.raises(ValueError, match=r"max_new_tokens must be a whole number, got 4\.5"):
        options_from({"max_new_tokens": 4.5})


def test_what_is_not_given_is_the_checkpoints_else_the_default() -> None:
    options = options_from({"top_k": 3, "min_p": None}, {"repetition_penalty": 1.2}, {"top_k": 9, "min_p": 0.1})

    assert (options.repetition_penalty, options.top_k, options.min_p) == (1.2, 3, 0.0)


@pytest.mark.parametrize("given", [{"do_sample": True}, {"temperature": 0.7}])
def test_a_drawn_request_takes_the_checkpoints_filters_too(given: dict[str, float]) -> None:
    options = options_from(given, {}, {"temperature": 0.4, "top_k": 9})

    assert (options.do_sample, options.top_k) == (True, 9)
    assert options.temperature == given.get("temperature", 0.4)


def test_drawing_without_a_temperature_draws_at_one() -> None:
    assert options_from({"do_sample": True}).temperature == 1.0


@pytest.mark.parametrize(
    "given", [{}, {"do_sample": False}, {"temperature": 0}, {"do_sample": False, "temperature": 0}]
)
def test_otherwise_decoding_is_greedy_whatever_the_checkpoint_says(given: dict[str, float]) -> None:
    options = options_from(given, {}, {"temperature": 0.4, "top_k": 9})

    assert (options.do_sample, options.temperature, options.top_k) == (False, 0.0, 0)


@pytest.mark.parametrize(("sample", "temperature"), [(True, 0), (False, 0.5)])
def test_do_sample_and_a_temperature_that_disagree_are_refused(sample: bool, temperature: float) -> None:
    with pytest.raises(UnsupportedOption, match=f"do_sample={sample} and temperature=.* disagree"):
        options_from({"do_sample": sample, "temperature": temperature})


def test_a_checkpoint_whose_temperature_is_zero_cannot_be_drawn_from_without_another() -> None:
    with pytest.raises(ValueError, match="the checkpoint's temperature is 0"):
        options_from({"do_sample": True}, {}, {"temperature": 0.0})
    assert options_from({"do_sample": True, "temperature": 0.5}, {}, {"temperature": 0.0}).temperature == 0.5


def test_applied_options_tell_the_checkpoints_part() -> None:
    defaults = CheckpointDefaults({"repetition_penalty": 1.2, "no_repeat_ngram": 3}, {"top_k": 9}, max_length=20)
    given = {"no_repeat_ngram": 2, "temperature": 0.5}
    options = options_from(given, defaults.options_after(5), defaults.options_if_drawn)
    told = applied_options(options, defaults, given, ["suppress_tokens"])

    assert told["checkpoint"] == ["repetition_penalty", "top_k", "max_length", "suppress_tokens"]
    assert (told["max_new_tokens"], told["top_k"], told["no_repeat_ngram"], told["temperature"]) == (15, 9, 2, 0.5)
    greedy = options_from({}, defaults.options, defaults.options_if_drawn)
    assert "top_k" not in applied_options(greedy, defaults, {}, [])["checkpoint"]
