"""What the hook takes from generate, what it refuses, and that batch-wise processors act on each row as in generate."""

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    DynamicCache,
    EosTokenCriteria,
    LogitsProcessorList,
    RepetitionPenaltyLogitsProcessor,
    T5Config,
    T5ForConditionalGeneration,
    WatermarkingConfig,
)

import forerun
from forerun.errors import UnsupportedModel, UnsupportedOption
from forerun.testing import tiny_model

from .prompts import BATCH, ENDS, MASK, PROMPT
from .prompts import PADDED as ALL_PADDED

PADDED = {**ALL_PADDED, "eos_token_id": ENDS}


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny_model("llama")


@pytest.fixture(scope="module")
def hook() -> Any:
    return forerun.custom_generate("self", drafter_options={"exit_layer": 2}, policy_options={"k": 3})


def filled_cache(model: Any) -> DynamicCache:
    cache = DynamicCache(config=model.config)
    with torch.no_grad():
        model(PROMPT, cache=cache)
    return cache


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"num_beams": 2}, "beam search was asked for; forerun decodes greedily or samples"),
    ({"num_beams": 2, "do_sample": True}, "beam sample was asked for"),
    ({"penalty_alpha": 0.6, "top_k": 4}, "contrastive search was asked for"),
    ({"dola_layers": "low"}, "dola generation was asked for"),
    ({"prompt_lookup_num_tokens": 3}, "assisted generation was asked for"),
    ({"assistant_early_exit": 2}, "assisted generation was asked for"),
    (
        {"output_attentions": True, "return_dict_in_generate": True},
        "output_attentions: packed forwards don't keep them",
    ),
    ({"output_hidden_states": True, "return_dict_in_generate": True}, "output_hidden_states: packed forwards"),
    ({"synced_gpus": True}, "synced_gpus: forerun runs a model on one device"),
    ({"guidance_scale": 1.5}, "UnbatchedClassifierFreeGuidanceLogitsProcessor can't be verified token by token"),
    ({"watermarking_config": WatermarkingConfig()}, "WatermarkLogitsProcessor can't be verified token by token"),
    ({"position_ids": torch.arange(1, 9)[None]}, "position_ids that don't count the tokens from 0"),
    ({"attention_mask": torch.tensor([[1] * 7 + [0]])}, "zeros after its first one; pad on the left"),
    ({"attention_mask": torch.tensor([[1, 0, 1, 1, 1, 1, 1, 1]])}, "zeros after its first one; pad on the left"),
    ({"attention_mask": torch.zeros(1, 8, dtype=torch.long)}, "a prompt that is all padding"),
    (
        {"max_new_tokens": 249},
        "8 tokens of prompt and 249 new ones don't fit the model's 256 positions; .* at most 248",
    ),
]


@pytest.mark.parametrize(("options", "reason"), REFUSED, ids=[" ".join(options) for options, _ in REFUSED])
def test_what_would_have_to_be_ignored_is_refused_with_the_reason(
    model: Any, hook: Any, options: dict[str, Any], reason: str
) -> None:
    given = {"max_new_tokens": 4, "do_sample": False, "pad_token_id": 0, **options}
    with pytest.raises(UnsupportedOption, match=reason):
        model.generate(PROMPT, **given, custom_generate=hook)


def test_an_assistant_model_is_refused(model: Any, hook: Any) -> None:
    with pytest.raises(UnsupportedOption, match="assisted generation was asked for"):
        model.generate(PROMPT, assistant_model=tiny_model("llama"), max_new_tokens=4, custom_generate=hook)


def test_a_cache_with_something_in_it_is_refused_and_an_empty_one_is_not(model: Any, hook: Any) -> None:
    options = {"max_new_tokens": 4, "do_sample": False, "custom_generate": hook}
    with pytest.raises(UnsupportedOption, match="the cache isn't empty"):
        model.generate(PROMPT, cache=filled_cache(model), **options)
    written = model.generate(PROMPT, cache=DynamicCache(config=model.config), **options)
    assert torch.equal(written, model.generate(PROMPT, max_new_tokens=4, do_sample=False))


def test_embeddings_in_the_place_of_ids_are_refused(model: Any, hook: Any) -> None:
    embeddings = model.get_input_embeddings()(PROMPT).detach()
    with pytest.raises(UnsupportedOption, match="the model input inputs_embeds; forerun runs token ids alone"):
        model.generate(PROMPT, inputs_embeds=embeddings, max_new_tokens=4, custom_generate=hook)


def test_a_batch_whose_texts_end_apart_needs_padding(model: Any, hook: Any) -> None:
    criteria = [EosTokenCriteria([3])]
    with pytest.raises(UnsupportedOption, match="needs a pad_token_id"):
        model.generate(BATCH, stopping_criteria=criteria, max_new_tokens=4, custom_generate=hook)


def test_an_encoder_decoder_is_refused(hook: Any) -> None:
    config = T5Config(vocab_size=97, d_model=16, d_kv=4, d_ff=16, num_layers=1, num_heads=2, decoder_start_token_id=0)
    with pytest.raises((UnsupportedModel, UnsupportedOption)):
        T5ForConditionalGeneration(config).generate(PROMPT, max_new_tokens=4, custom_generate=hook)


def test_position_ids_that_say_what_the_mask_says_are_no_obstacle(model: Any, hook: Any) -> None:
    positions = (MASK.cumsum(-1) - 1).clamp(min=0)
    options = {**PADDED, "position_ids": positions, "max_new_tokens": 5, "do_sample": False}
    assert torch.equal(model.generate(**options, custom_generate=hook), model.generate(**options))


def even_rows_write_even_tokens(row: int, ids: Tensor) -> list[int]:
    return list(range(row % 2, 97, 2))


PROCESSORS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"repetition_penalty": 1.6}, {}),
    ({"no_repeat_ngram_size": 2}, {}),
    ({"encoder_repetition_penalty": 3.0}, {}),
    ({"encoder_no_repeat_ngram_size": 1}, {}),
    ({"bad_words_ids": [[20], [81, 20]]}, {}),
    ({"sequence_bias": {(20,): -3.0, (5, 16): 4.0}}, {}),
    ({"min_new_tokens": 9}, {"eos_token_id": ENDS}),
    ({"forced_eos_token_id": 58}, {"max_new_tokens": 9}),
    ({"exponential_decay_length_penalty": (3, 1.5)}, {"eos_token_id": ENDS}),
    ({"suppress_tokens": [20, 81, 68], "begin_suppress_tokens": [89, 57, 63]}, {}),
    ({"prefix_allowed_tokens_fn": even_rows_write_even_tokens}, {}),
    ({"logits_processor": LogitsProcessorList([forerun.row_wise(lambda ids, scores: -scores)])}, {}),
]


@pytest.mark.parametrize(("options", "others"), PROCESSORS, ids=[" ".join(options) for options, _ in PROCESSORS])
def test_processors_act_on_every_row_as_in_generate(
    model: Any, hook: Any, options: dict[str, Any], others: dict[str, Any]
) -> None:
    given = {**PADDED, "eos_token_id": 92, "max_new_tokens": 20, "do_sample": False, **others}
    expected = model.generate(**given, **options)
    assert not torch.equal(expected, model.generate(**given))
    assert torch.equal(model.generate(**given, **options, custom_generate=hook), expected)


def test_processors_know_their_row_where_each_prompt_is_asked_several_times(model: Any, hook: Any) -> None:
    given = {
        **PADDED,
        "num_return_sequences": 2,
        "do_sample": True,
        "max_new_tokens": 6,
        "prefix_allowed_tokens_fn": even_rows_write_even_tokens,
        "encoder_no_repeat_ngram_size": 1,
    }
    written = model.generate(**given, custom_generate=hook)[:, 8:]
    for row, ids in enumerate(written.tolist()):
        own = [token for token in ids if token != 0]
        assert {token % 2 for token in own} <= {(row // 2) % 2}
        assert not set(own) & set(BATCH[row // 2].tolist())


def test_generates_own_processors_are_left_as_they_were(model: Any, hook: Any) -> None:
    lengths = torch.tensor([0, 3, 7])
    processor = RepetitionPenaltyLogitsProcessor(1.5, prompt_ignore_length=lengths)
    given = {**PADDED, "logits_processor": [processor], "max_new_tokens": 5, "do_sample": False}
    expected = model.generate(**given)
    assert torch.equal(model.generate(**given, custom_generate=hook), expected)
    assert processor.prompt_ignore_length is lengths


@pytest.mark.parametrize("pad", [0, 3, None], ids=["pad", "pad is an end", "no pad"])
def test_padding_is_told_from_the_pad_token_as_in_generate(model: Any, hook: Any, pad: int | None) -> None:
    """generate infers the mask, unless the pad token is an end of sequence; the hook goes by what it is handed."""
    ids = BATCH.masked_fill(BATCH == 0, 0 if pad is None else pad)
    given = {"input_ids": ids, "pad_token_id": pad, "max_new_tokens": 12, "do_sample": False}
    given |= {} if pad is None else {"eos_token_id": ENDS}
    expected = model.generate(**given)
    assert torch.equal(model.generate(**given, custom_generate=hook), expected)
    masked = model.generate(**given, attention_mask=MASK)
    assert torch.equal(masked, expected) == (pad == 0)


def test_padding_on_the_right_that_generate_infers_is_refused(model: Any, hook: Any) -> None:
    with pytest.raises(UnsupportedOption, match="zeros after its first one; pad on the left"):
        model.generate(BATCH.flip(1)[1:], pad_token_id=0, max_new_tokens=3, custom_generate=hook)
