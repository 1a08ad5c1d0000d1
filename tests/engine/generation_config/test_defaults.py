"""Every field of a generation config acts, is harmless, or is refused by name."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import GenerationConfig

from forerun.engine.generation_config.defaults import (
    ENDS,
    HARMLESS,
    LENGTH,
    OPTIONS,
    OPTIONS_IF_DRAWN,
    PROCESSORS,
    REFUSED,
    SAMPLES,
    WARPERS,
    CheckpointDefaults,
    read_defaults,
)
from forerun.engine.generation_config.processors import AFTER_PENALTIES, BEFORE_PENALTIES, LAST
from forerun.engine.generation_config.processors import WARPERS as MADE_WARPERS
from forerun.errors import UnsupportedOption

ACTING = [*OPTIONS, *OPTIONS_IF_DRAWN, *PROCESSORS, *WARPERS, LENGTH, SAMPLES, ENDS]


def config(**fields: Any) -> Any:
    """Fields as they are, without what a GenerationConfig refuses by itself."""
    return SimpleNamespace(**fields)


def test_every_field_of_transformers_stands_in_exactly_one_table() -> None:
    known = [*HARMLESS, *REFUSED, *ACTING]

    assert set(GenerationConfig().__dict__) - set(known) == set()
    assert len(known) == len(set(known))


def test_of_every_field_that_needs_a_processor_one_can_be_made() -> None:
    assert {*BEFORE_PENALTIES, *AFTER_PENALTIES, *LAST} == {*PROCESSORS}
    assert {*MADE_WARPERS} == {*WARPERS}


@pytest.mark.parametrize("empty", [None, GenerationConfig(), GenerationConfig(do_sample=False, num_beams=1)])
def test_a_config_that_asks_for_nothing_gives_no_defaults(empty: Any) -> None:
    assert read_defaults(empty) == CheckpointDefaults()


def test_the_defaults_that_transformers_fills_in_ask_for_nothing_in_a_greedy_request() -> None:
    found = read_defaults(config(**{**GenerationConfig._get_default_generation_params(), "max_length": None}))

    assert (found.options, found.processors, found.warpers, found.samples, found.fields) == ({}, {}, {}, False, [])


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("num_beams", 2, "beam search"),
        ("penalty_alpha", 0.6, "contrastive search"),
        ("dola_layers", "high", "several layers"),
        ("constraints", [], "beam search"),
        ("force_words_ids", [[1]], "beam search"),
        ("guidance_scale", 1.5, "second text"),
        ("watermarking_config", {"bias": 2.0}, "watermark"),
        ("token_healing", True, "last token anew"),
        ("max_time", 3.0, "by the clock"),
        ("is_assistant", True, "where it is unsure"),
        ("assistant_ensemble_weight", 0.5, "the model's law"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name_with_the_reason(field: str, value: Any, reason: str) -> None:
    with pytest.raises(UnsupportedOption, match=rf"{field}=.*{reason}.*generation_config=False"):
        read_defaults(config(**{field: value}))


def test_every_refused_field_was_tried_above() -> None:
    (tried,) = (mark for mark in test_what_cannot_be_done_is_refused_by_name_with_the_reason.pytestmark)  # type: ignore[attr-defined]

    assert {field for field, _, _ in tried.args[1]} == {*REFUSED}


@pytest.mark.parametrize(
    ("field", "value"), [("num_beams", 1), ("penalty_alpha", 0.0), ("guidance_scale", 1.0), ("token_healing", False)]
)
def test_a_value_that_asks_for_nothing_is_not_refused(field: str, value: Any) -> None:
    assert read_defaults(config(**{field: value})) == CheckpointDefaults()


@pytest.mark.parametrize("field", sorted(HARMLESS))
def test_a_harmless_field_says_why_and_changes_nothing(field: str) -> None:
    assert HARMLESS[field]
    assert read_defaults(config(**{field: 5})) == CheckpointDefaults()


def test_options_have_forerun_s_names() -> None:
    fields = {"repetition_penalty": 1.2, "no_repeat_ngram_size": 3, "max_new_tokens": 7, "stop_strings": "end"}
    found = read_defaults(config(**fields, top_k=5, temperature=1))

    assert found.options == {
        "max_new_tokens": 7,
        "repetition_penalty": 1.2,
        "no_repeat_ngram": 3,
        "stop": ("end",),
    }
    assert found.options_if_drawn == {"temperature": 1.0, "top_k": 5}
    assert found.fields == ["max_new_tokens", "repetition_penalty", "no_repeat_ngram_size", "stop_strings"]


def test_only_what_asks_for_something_becomes_a_processor() -> None:
    idle = {"min_length": 0, "suppress_tokens": [], "remove_invalid_values": False, "encoder_repetition_penalty": 1.0}
    acting = {"min_new_tokens": 2, "begin_suppress_tokens": [1], "renormalize_logits": True}

    assert read_defaults(config(**idle, **acting)).processors == acting


def test_a_model_objects_config_may_hold_tensors() -> None:
    tokens = torch.tensor([3, 4])

    assert read_defaults(config(suppress_tokens=tokens, forced_bos_token_id=0)).processors == {
        "forced_bos_token_id": 0,
        "suppress_tokens": tokens,
    }


def test_min_new_tokens_takes_the_place_of_min_length_even_where_it_is_zero() -> None:
    assert read_defaults(config(min_length=9)).processors == {"min_length": 9}
    assert read_defaults(config(min_length=9, min_new_tokens=0)).processors == {}


def test_only_what_filters_becomes_a_warper() -> None:
    idle = {"typical_p": 1.0, "epsilon_cutoff": 0.0, "eta_cutoff": 0.0}

    assert read_defaults(config(**idle)).warpers == {}
    assert read_defaults(config(**{**idle, "typical_p": 0.9, "top_h": 1.0})).warpers == {"top_h": 1.0, "typical_p": 0.9}


def test_a_length_with_the_prompt_leaves_what_the_prompt_leaves() -> None:
    found = read_defaults(config(max_length=10, repetition_penalty=2.0))

    assert found.options_after(4) == {"repetition_penalty": 2.0, "max_new_tokens": 6}
    assert found.options_after(11)["max_new_tokens"] == 0
    assert read_defaults(config(max_length=10, max_new_tokens=3)).options_after(4) == {"max_new_tokens": 3}


@pytest.mark.parametrize("ends", [[3, 4], (3, 4), torch.tensor([3, 4])])
def test_ends_are_one_token_or_several(ends: Any) -> None:
    assert read_defaults(config(eos_token_id=ends)).ends == {3, 4}
    assert read_defaults(config(eos_token_id=3)).ends == {3}
    assert read_defaults(config(eos_token_id=None)).ends == set()


def test_a_checkpoint_that_samples_says_so() -> None:
    assert read_defaults(config(do_sample=True)).samples


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("repetition_penalty", "high"),
        ("max_new_tokens", 2.5),
        ("no_repeat_ngram_size", True),
        ("top_p", [1]),
        ("num_beams", "four"),
        ("typical_p", "x"),
        ("max_length", "long"),
        ("stop_strings", 5),
    ],
)
def test_a_value_of_another_type_is_named_with_its_field(field: str, value: Any) -> None:
    with pytest.raises(UnsupportedOption, match=rf"generation config has {field}="):
        read_defaults(config(**{field: value}))


def test_a_long_value_is_cut_in_the_message() -> None:
    with pytest.raises(UnsupportedOption, match=r"force_words_ids=\[\[0, 1, .* \.\.\.: ") as told:
        read_defaults(config(force_words_ids=[list(range(500))]))
    assert len(str(told.value)) < 400
