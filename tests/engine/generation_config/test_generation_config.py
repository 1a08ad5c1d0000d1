"""A checkpoint's own generation config: greedy text equals transformers' generate token for token, whoever drafts."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    GenerationConfig,
    LogitsProcessorList,
    RepetitionPenaltyLogitsProcessor,
    SuppressTokensLogitsProcessor,
)

from forerun import Engine, UnsupportedOption, load
from forerun.testing import END, save_tiny, tiny_model, tiny_tokenizer

PROMPT = [5, 9, 40, 7, 5, 9, 40, 7, 5]
SETTINGS: dict[str, dict[str, Any]] = {
    "repetition_penalty": {"repetition_penalty": 1.4},
    "no_repeat_ngram_size": {"no_repeat_ngram_size": 2},
    "suppress_tokens": {"suppress_tokens": list(range(0, 256, 2))},
    "begin_suppress_tokens": {"begin_suppress_tokens": list(range(200))},
    "bad_words_ids": {
        "bad_words_ids": [[token] for token in range(100)] + [[token, token] for token in range(100, 256)]
    },
    "sequence_bias": {"sequence_bias": [[[7], 9.0], [[7, 9], 20.0], [[9, 5], 20.0]]},
    "forced_bos_token_id": {"forced_bos_token_id": 3},
    "forced_eos_token_id": {"forced_eos_token_id": END},
    "exponential_decay_length_penalty": {"exponential_decay_length_penalty": [3, 1.9]},
    "min_new_tokens": {"min_new_tokens": 8, "exponential_decay_length_penalty": [2, 3.0]},
    "min_length": {"min_length": 16, "exponential_decay_length_penalty": [2, 3.0]},
    "encoder_repetition_penalty": {"encoder_repetition_penalty": 0.5},
    "encoder_no_repeat_ngram_size": {"encoder_no_repeat_ngram_size": 1},
    "renormalize_logits": {"renormalize_logits": True, "remove_invalid_values": True},
    "max_new_tokens": {"max_new_tokens": 5},
    "max_length": {"max_length": 15},
    "everything": {
        "sequence_bias": [[[7], 4.0], [[9, 5], -3.0]],
        "repetition_penalty": 1.3,
        "no_repeat_ngram_size": 3,
        "bad_words_ids": [[1], [2, 3]],
        "min_new_tokens": 6,
        "forced_eos_token_id": [END, 4],
        "exponential_decay_length_penalty": [4, 1.2],
        "suppress_tokens": [10, 11, 12],
        "begin_suppress_tokens": list(range(50)),
        "renormalize_logits": True,
    },
}
LIMITS = {"max_new_tokens", "max_length"}
METHODS = {"none": {}, "lookup": {}, "self": {"exit_layer": 2}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("models") / "tiny")


def written(folder: Path, **fields: Any) -> Path:
    """The tiny checkpoint with these fields in its generation config."""
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": END, **fields}))
    return folder


def of_transformers(model: Any, prompt: list[int], *processors: Any, **options: Any) -> list[int]:
    ids = torch.tensor([prompt])
    wanted = {"pad_token_id": 0, "logits_processor": LogitsProcessorList(processors), **options}
    out = model.generate(ids, attention_mask=torch.ones_like(ids), **wanted)
    return [int(token) for token in out[0, len(prompt) :]]


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("runner", ["lean", "hf"])
def test_a_checkpoint_on_disk_writes_what_transformers_writes(folder: Path, runner: str, name: str) -> None:
    fields = SETTINGS[name]
    place = written(folder, **fields)
    limit = {} if LIMITS & {*fields} else {"max_new_tokens": 12}
    expected = of_transformers(AutoModelForCausalLM.from_pretrained(place, dtype=torch.float32), PROMPT, **limit)
    plain = load(place, dtype="float32", runner=runner)

    for drafter, options in METHODS.items():
        result = plain.using(drafter, drafter_options=options).generate(PROMPT, **limit)
        assert list(result.ids) == expected, drafter
        assert {*fields} - {"remove_invalid_values"} <= {*result.applied["checkpoint"]} | {"remove_invalid_values"}


@pytest.mark.parametrize("name", sorted({*SETTINGS} - {"renormalize_logits"}))
def test_each_of_these_settings_changes_the_text(folder: Path, name: str) -> None:
    prompt = PROMPT[:1] if name == "forced_bos_token_id" else list(range(200)) if "encoder" in name else PROMPT
    engine = load(written(folder, **SETTINGS[name]), dtype="float32")

    bare = engine.generate(prompt, generation_config=False, max_new_tokens=40).ids

    assert engine.generate(prompt, max_new_tokens=None if LIMITS & {*SETTINGS[name]} else 40).ids != bare


def test_without_the_generation_config_a_text_is_that_of_a_bare_checkpoint(folder: Path) -> None:
    bare = load(written(folder), dtype="float32").generate(PROMPT, max_new_tokens=12)
    engine = load(written(folder, **SETTINGS["everything"]), dtype="float32")
    result = engine.generate(PROMPT, max_new_tokens=12, generation_config=False)

    assert result.ids == bare.ids
    assert result.applied["checkpoint"] == []


@cache
def model() -> Any:
    return tiny_model("llama", eos_token_id=2)


def engine_of(drafter: str = "lookup", tokenizer: Any = None, **fields: Any) -> Engine:
    """An engine on the model object, whose generation config holds these fields."""
    model().generation_config = GenerationConfig(**{"eos_token_id": 2, **fields})
    return load(model(), tokenizer, drafter, drafter_options=METHODS[drafter])


@pytest.mark.parametrize("prompt", [[5], PROMPT])
@pytest.mark.parametrize("drafter", METHODS)
def test_a_prompt_of_one_token_counts_as_the_beginning(drafter: str, prompt: list[int]) -> None:
    fields = {"forced_bos_token_id": 3, "begin_suppress_tokens": list(range(60)), "max_new_tokens": 6}
    result = engine_of(drafter, **fields).generate(prompt)

    assert list(result.ids) == of_transformers(model(), prompt)


def test_a_request_overrides_the_checkpoint() -> None:
    engine = engine_of(repetition_penalty=1.5, no_repeat_ngram_size=2, max_new_tokens=4)

    for given, theirs in (
        ({"repetition_penalty": 1.0}, {"repetition_penalty": 1.0}),
        ({"no_repeat_ngram": 0, "max_new_tokens": 9}, {"no_repeat_ngram_size": 0, "max_new_tokens": 9}),
        ({"repetition_penalty": 0.8, "no_repeat_ngram": 3}, {"repetition_penalty": 0.8, "no_repeat_ngram_size": 3}),
    ):
        result = engine.generate(PROMPT, **given)
        assert list(result.ids) == of_transformers(model(), PROMPT, **theirs)
        assert not {*theirs} & {*result.applied["checkpoint"]}


def test_none_leaves_an_option_to_the_checkpoint() -> None:
    engine = engine_of(repetition_penalty=1.5, max_new_tokens=4)

    assert engine.generate(PROMPT, repetition_penalty=None, max_new_tokens=None, stop=None, temperature=None).ids == (
        engine.generate(PROMPT).ids
    )


@pytest.mark.parametrize(
    "processors",
    [
        [RepetitionPenaltyLogitsProcessor(2.0)],
        [SuppressTokensLogitsProcessor([40, 41]), RepetitionPenaltyLogitsProcessor(0.7)],
        [SuppressTokensLogitsProcessor([40, 41]), SuppressTokensLogitsProcessor([42])],
    ],
)
def test_a_processor_of_the_request_stands_in_the_place_of_the_checkpoints_own(processors: list[Any]) -> None:
    fields = {"sequence_bias": [[[7], 3.0]], "repetition_penalty": 1.5, "suppress_tokens": list(range(30))}
    engine = engine_of(**fields, no_repeat_ngram_size=2, max_new_tokens=10)

    assert list(engine.generate(PROMPT, processors=processors).ids) == of_transformers(model(), PROMPT, *processors)


def test_a_model_object_is_asked_anew_each_time_and_left_as_it_is() -> None:
    engine = engine_of(max_new_tokens=8)
    own = model().generation_config
    before, told = engine.generate(PROMPT).ids, own.to_dict()
    assert (model().generation_config, own.to_dict()) == (own, told)

    own.suppress_tokens = list(before[:1])
    edited = engine.generate(PROMPT).ids
    model().generation_config = GenerationConfig(max_new_tokens=3, eos_token_id=2)

    assert list(edited) != list(before)
    assert len(engine.generate(PROMPT).ids) == 3


def test_ends_that_a_model_object_gets_later_end_its_texts() -> None:
    engine = engine_of(max_new_tokens=8)
    whole = engine.generate(PROMPT).ids
    model().generation_config.eos_token_id = [2, whole[3]]

    assert engine.generate(PROMPT).ids == whole[: whole.index(whole[3]) + 1]
    assert engine.generate(PROMPT, ignore_eos=True).ids == whole


def test_an_engine_does_not_keep_the_model_object_alive_for_its_generation_config() -> None:
    own = tiny_model("gpt2")
    own.generation_config = GenerationConfig(max_new_tokens=3)
    engine = load(own)
    del own

    assert len(engine.generate(PROMPT).ids) == 3


def test_generation_fields_of_an_old_config_json_count_where_there_is_no_generation_config_json(tmp_path: Path) -> None:
    place = save_tiny(tmp_path / "old")
    (place / "generation_config.json").unlink()
    config = json.loads((place / "config.json").read_text())
    (place / "config.json").write_text(json.dumps({**config, "repetition_penalty": 1.7, "no_repeat_ngram_size": 2}))

    result = load(place, dtype="float32").generate(PROMPT, max_new_tokens=12)

    assert result.applied["checkpoint"] == ["repetition_penalty", "no_repeat_ngram_size"]
    reread = AutoModelForCausalLM.from_pretrained(place, dtype=torch.float32)
    assert list(result.ids) == of_transformers(reread, PROMPT, max_new_tokens=12)


def test_stop_strings_of_the_checkpoint_end_a_text_unless_the_request_gives_its_own(folder: Path) -> None:
    plain = load(written(folder), dtype="float32").generate("hello", max_new_tokens=12)
    assert plain.text is not None
    end = plain.text[3]
    engine = load(written(folder, stop_strings=[end]), dtype="float32")

    assert engine.generate("hello", max_new_tokens=12).text == plain.text[: plain.text.index(end)]
    assert engine.generate("hello", max_new_tokens=12, stop=()).text == plain.text


def test_stop_strings_of_the_checkpoint_without_a_tokenizer_say_how_to_go_on() -> None:
    with pytest.raises(UnsupportedOption, match=r"stop strings need a tokenizer; .* or pass stop="):
        engine_of(stop_strings=["x"]).generate(PROMPT)


def test_a_prompt_as_long_as_the_checkpoints_max_length_is_refused_unless_a_limit_is_given() -> None:
    engine = engine_of(max_length=len(PROMPT))

    with pytest.raises(ValueError, match=r"9 tokens .* max_length=9; give max_new_tokens"):
        engine.generate(PROMPT)
    assert len(engine.generate(PROMPT, max_new_tokens=2).ids) == 2


def test_what_cannot_be_applied_is_refused_by_name_and_says_how_to_go_on() -> None:
    engine = engine_of(num_beams=4, suppress_tokens=[1])

    with pytest.raises(UnsupportedOption, match=r"num_beams=4: beam search .* generation_config=False"):
        engine.generate(PROMPT)
    assert engine.generate(PROMPT, generation_config=False, max_new_tokens=3).applied["checkpoint"] == []


def test_every_request_of_a_batch_has_processors_of_its_own() -> None:
    fields = {"min_new_tokens": 5, "forced_eos_token_id": 2, "begin_suppress_tokens": list(range(50))}
    engine = engine_of(**fields, exponential_decay_length_penalty=[1, 2.0])
    requests = [(PROMPT[:n], {"max_new_tokens": 4 + n}) for n in (1, 4, 9)]

    together = dict(engine.each(requests))

    for number, (prompt, options) in enumerate(requests):
        assert list(together[number].ids) == of_transformers(model(), prompt, **options)


def test_a_draft_with_a_smaller_vocabulary_drafts_under_processors_that_look_tokens_up() -> None:
    fields = {"sequence_bias": [[[96], -2.0], [[7, 95], 9.0]], "forced_eos_token_id": 96, "bad_words_ids": [[94]]}
    fields["suppress_tokens"] = list(range(90, 96))  # which the draft couldn't read
    model().generation_config = GenerationConfig(eos_token_id=2, **fields)
    small = tiny_model("llama", seed=1, vocab_size=90, eos_token_id=None)
    engine = load(model(), drafter="draft_model", drafter_options={"model": small})

    for options in ({}, {"temperature": 0.7, "seed": 3}):
        assert engine.generate(PROMPT, max_new_tokens=8, **options).stats.drafted > 0
    assert list(engine.generate(PROMPT, max_new_tokens=8).ids) == of_transformers(model(), PROMPT, max_new_tokens=8)


def test_ignoring_the_end_changes_where_a_text_ends_and_nothing_before() -> None:
    engine = engine_of(min_new_tokens=3, exponential_decay_length_penalty=[1, 4.0])
    short = engine.generate(PROMPT, max_new_tokens=12).ids
    long = engine.generate(PROMPT, max_new_tokens=12, ignore_eos=True).ids

    assert len(short) < len(long) == 12
    assert long[: len(short)] == short


def test_processed_logprobs_are_those_after_the_checkpoints_processors() -> None:
    engine = engine_of(suppress_tokens=list(range(50)), renormalize_logits=True)
    result = engine.generate(PROMPT, max_new_tokens=3, logprobs=97, processed_logprobs=True)

    assert result.logprobs is not None
    for one in result.logprobs:
        assert all(value == -torch.inf for token, value in one.top if token < 50)


def test_a_drawn_text_takes_what_it_leaves_open_from_the_checkpoint() -> None:
    engine = engine_of(temperature=0.6, top_k=4, top_p=0.9, max_new_tokens=8, typical_p=0.95)
    result = engine.generate(PROMPT, do_sample=True, seed=1)

    assert result.applied["checkpoint"] == ["max_new_tokens", "temperature", "top_k", "top_p", "typical_p"]
    assert [result.applied[name] for name in ("temperature", "top_k", "top_p")] == [0.6, 4, 0.9]
    same = engine.generate(PROMPT, temperature=0.6, top_k=4, top_p=0.9, seed=1)
    assert same.ids == result.ids
    assert same.applied["checkpoint"] == ["max_new_tokens", "typical_p"]


def test_decoding_stays_greedy_unless_the_request_draws() -> None:
    drawing = engine_of(do_sample=True, temperature=0.6, top_k=4, max_new_tokens=8)
    result = drawing.generate(PROMPT)

    assert result.ids == engine_of(max_new_tokens=8).generate(PROMPT).ids
    assert result.applied["temperature"] == 0
    assert result.applied["checkpoint"] == ["max_new_tokens"]


def test_a_drawn_text_without_a_temperature_anywhere_is_drawn_at_one() -> None:
    assert engine_of(max_new_tokens=3).generate(PROMPT, do_sample=True).applied["temperature"] == 1


def test_a_tokenizers_own_end_is_held_back_as_long_as_the_checkpoints_ends_are() -> None:
    """Every id that ends a text counts: min_new_tokens promises a length."""
    tokenizer = tiny_tokenizer()
    own = tiny_model("llama", vocab_size=len(tokenizer), eos_token_id=7)
    with torch.no_grad():
        own.lm_head.weight[END] = own.lm_head.weight[END] * 20
    own.generation_config = GenerationConfig(eos_token_id=7, min_new_tokens=9)

    assert len(load(own, tokenizer).generate("hello", max_new_tokens=12).ids) >= 9
