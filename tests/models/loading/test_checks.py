"""What is refused by structure, and how long a text may be."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForSequenceClassification,
    LlamaModel,
    T5Config,
    T5ForConditionalGeneration,
)
from transformers.utils.quantization_config import GgufConfig

from forerun.errors import UnsupportedModel
from forerun.families.small import small_model
from forerun.models.loading.checks import cached_length, check_structure
from forerun.models.loading.load import open_model
from forerun.models.packed.layers import decoder_layers
from forerun.models.packed.limits import max_length_of
from forerun.models.packed.mask import Pattern
from forerun.models.packed.runner import HFRunner
from forerun.models.packed.sequence import Sequence
from forerun.testing import FAMILIES, tiny_model

from ..running import chain, off, own_logits, text, together

SMALL: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
GROUPED = {"num_key_value_heads": 2, "head_dim": 8}
LINEAR = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 8,
    "shared_expert_intermediate_size": 8,
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}
BART = {"d_model": 32, "decoder_layers": 4, "encoder_layers": 4, "decoder_attention_heads": 4, "decoder_ffn_dim": 48}
GEMMA3N = {**GROUPED, "num_kv_shared_layers": 0, "vocab_size_per_layer_input": 97, "hidden_size_per_layer_input": 8}
ALIBI = r"position biases in its attention scores \(alibi\)"
STATE = "can't take back a rejected token"
KEYWORDS = "doesn't hand its keyword arguments to its layers"

REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "falcon with alibi": ("falcon", {"alibi": True}, ALIBI),
    "bloom": ("bloom", {"n_layer": 4, "n_head": 4}, ALIBI),
    "mpt": ("mpt", {"d_model": 32, "n_heads": 4, "n_layers": 4}, ALIBI),
    "mamba": ("mamba", {"state_size": 4}, f"linear_attention; .*{STATE}"),
    "mamba2": ("mamba2", {"head_dim": 8, "num_heads": 8, "state_size": 8, "n_groups": 1}, STATE),
    "rwkv": ("rwkv", {"attention_hidden_size": 32}, STATE),
    "jamba": ("jamba", {**GROUPED, "mamba_d_state": 4, "attn_layer_period": 2, "attn_layer_offset": 1}, STATE),
    "bamba": ("bamba", {**GROUPED, "mamba_n_heads": 8, "mamba_d_head": 8, "attn_layer_indices": [1]}, STATE),
    "lfm2": ("lfm2", {**GROUPED, "layer_types": ["conv", "full_attention"] * 2}, f"layers of type conv; .*{STATE}"),
    "recurrent gemma": ("recurrent_gemma", {"num_key_value_heads": 1, "head_dim": 8}, STATE),
    "xlstm": ("xlstm", {"num_heads": 2}, STATE),
    "falcon h1": (
        "falcon_h1",
        {**GROUPED, "mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_head": 8},
        "layers of type hybrid",
    ),
    "qwen3 next": ("qwen3_next", {**GROUPED, **LINEAR}, f"linear_attention; .*{STATE}"),
    "bert": ("bert", {}, "BertLMHeadModel: attention in both directions"),
    "big bird": ("big_bird", {"is_decoder": True}, "attention_type block_sparse"),
    "roberta": ("roberta", {"is_decoder": True}, "positions that start after the padding token's id"),
    "bart": ("bart", BART, "takes no position_ids"),
    "doge": ("doge", GROUPED, "works on its mask itself"),
    "gemma3n": ("gemma3n_text", GEMMA3N, "its layers hand on 4 streams of states"),
    "gemma3 in both directions": (
        "gemma3_text",
        {**GROUPED, "use_bidirectional_attention": True},
        "in both directions",
    ),
    "diffllama": ("diffllama", GROUPED, "DiffLlamaAttention attends twice in layer 0"),
    "llama4 with temperatures": (
        "llama4_text",
        {**FAMILIES["llama4_text"], "attn_temperature_tuning": True},
        "counts rows",
    ),
    "openai gpt": ("openai-gpt", {"n_embd": 32, "n_layer": 4, "n_head": 4, "n_positions": 64}, KEYWORDS),
    "deepseek v3.2": ("deepseek_v32", FAMILIES["deepseek_v3"], "layers of type indexed_attention"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", REFUSED)
def test_what_can_not_be_run_exactly_is_refused_with_the_reason(case: str) -> None:
    family, options, reason = REFUSED[case]
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **{**SMALL, **options}))
    with pytest.raises(UnsupportedModel, match=reason) as caught:
        open_model(model)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", [LlamaModel, LlamaForSequenceClassification])
def test_a_model_without_an_output_head_is_refused(kind) -> None:
    with pytest.raises(UnsupportedModel, match=f"{kind.__name__}: no output head, so it writes no text"):
        check_structure(kind(LlamaConfig(**SMALL)))


def test_an_encoder_decoder_is_refused() -> None:
    config = T5Config(d_model=16, d_kv=4, d_ff=16, num_layers=1, num_heads=2, vocab_size=20)
    with pytest.raises(UnsupportedModel, match="T5ForConditionalGeneration: an encoder-decoder"):
        check_structure(T5ForConditionalGeneration(config))


@pytest.mark.parametrize("family", FAMILIES)
def test_supported_families_pass(family: str) -> None:
    check_structure(tiny_model(family))


def test_falcon_without_alibi_is_not_refused_for_alibi() -> None:
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model("falcon", **SMALL, alibi=False))
    check_structure(model)


@pytest.mark.parametrize(
    ("devices", "named"),
    [
        ({"model": 0, "lm_head": 1}, "0, 1"),
        ({"model": 0, "lm_head": "cpu"}, "0, cpu"),
        ({"a": "cpu", "b": "disk"}, "cpu, disk"),
    ],
)
def test_a_model_on_several_devices_is_refused(devices: dict[str, object], named: str) -> None:
    model = tiny_model("llama")
    model.hf_device_map = devices
    with pytest.raises(
        UnsupportedModel, match=f"its weights are spread over {named}; forerun runs a model on one device"
    ):
        check_structure(model)


def test_a_model_whose_weights_are_elsewhere_is_refused() -> None:
    model = tiny_model("llama")
    model.lm_head.to("meta")
    with pytest.raises(UnsupportedModel, match="spread over cpu, meta"):
        check_structure(model)
    with pytest.raises(UnsupportedModel, match="spread over meta"):
        check_structure(model.to("meta"))


def test_a_device_map_with_one_device_passes() -> None:
    model = tiny_model("llama")
    model.hf_device_map = {"": 0}
    check_structure(model)


@pytest.mark.parametrize("mark", [{"quant_method": "gptq", "bits": 4}, {"quant_method": "gguf"}])
def test_a_quantised_model_is_refused(mark: dict[str, object]) -> None:
    model = tiny_model("llama")
    model.config.quantization_config = mark
    with pytest.raises(UnsupportedModel, match=f"LlamaForCausalLM is quantised by {mark['quant_method']}"):
        check_structure(model)


def test_a_gguf_file_that_transformers_unpacked_passes_and_one_in_blocks_does_not() -> None:
    model = tiny_model("llama")
    model.config.quantization_config = GgufConfig(gguf_file="some.gguf")
    check_structure(model)
    model.lm_head.weight = torch.nn.Parameter(torch.zeros(97, 32, dtype=torch.uint8), requires_grad=False)
    with pytest.raises(UnsupportedModel, match="LlamaForCausalLM is quantised by gguf"):
        check_structure(model)


@pytest.mark.parametrize(
    ("family", "options", "limit"),
    [
        ("llama", {"max_position_embeddings": 77}, 77),
        ("gpt2", {"n_positions": 55}, 55),
        ("bloom", {}, None),
        ("mpt", {}, None),
        ("llama", {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}}, 2048),
        ("llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}}, 2048),
        ("llava", {"text_config": {"model_type": "llama", "max_position_embeddings": 99}}, 99),
    ],
)
def test_a_text_may_be_as_long_as_its_positions(family: str, options: dict[str, Any], limit: int | None) -> None:
    assert max_length_of(AutoConfig.for_model(family, **options)) == limit


LONG = {
    "rope_type": "longrope",
    "rope_theta": 1e4,
    "short_factor": [1.0] * 4,
    "long_factor": [3.0] * 4,
    "original_max_position_embeddings": 24,
    "factor": 2.0,
}
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 3.0}


def test_a_scale_that_switches_caps_like_longrope() -> None:
    scaled = {**DYNAMIC, "rope_type": "linear", "long_mscale": 1.5, "original_max_position_embeddings": 24}
    assert max_length_of(AutoConfig.for_model("llama", rope_parameters=scaled)) == 24


def test_longrope_is_capped_where_it_switches_for_every_layer_type() -> None:
    config = AutoConfig.for_model("llama", max_position_embeddings=48, rope_parameters=LONG)
    assert max_length_of(config) == 24
    nested = AutoConfig.for_model("gemma3_text", max_position_embeddings=48)
    nested.rope_parameters = {"sliding_attention": {"rope_type": "default"}, "full_attention": LONG}
    assert max_length_of(nested) == 24


@pytest.mark.parametrize(("rope", "limit"), [(LONG, 24), (DYNAMIC, 48)])
def test_up_to_the_cap_a_text_is_exact_beside_any_other_and_after_it_is_refused(
    rope: dict[str, Any], limit: int
) -> None:
    model = tiny_model("llama", max_position_embeddings=48, rope_parameters=rope)
    runner = HFRunner(model)
    assert runner.max_length == limit
    texts = [text(limit), text(7, seed=1)]
    for ids, rows in zip(texts, together(*(Sequence(runner).forward(ids) for ids in texts)), strict=True):
        assert off(rows.logits, own_logits(model, ids)) < 1e-4
    with pytest.raises(ValueError, match=f"the text has {limit + 1} tokens"):
        Sequence(runner).complete(text(limit + 1), chain(limit + 1)).send(None)


@pytest.mark.parametrize(("rope", "limit"), [(LONG, 24), (DYNAMIC, 48)])
def test_after_the_cap_a_longer_neighbour_would_change_a_text(rope: dict[str, Any], limit: int) -> None:
    """Why the cap is there: without it the short text is computed with the long one's frequencies."""
    model = tiny_model("llama", max_position_embeddings=48, rope_parameters=rope)
    runner = HFRunner(model)
    runner.max_length = None
    short = text(20, seed=1)
    rows = together(*(Sequence(runner).forward(ids) for ids in (text(limit + 30), short)))[1]
    assert off(rows.logits, own_logits(model, short)) > 1e-2


@pytest.mark.parametrize(
    ("patterns", "limit"),
    [
        ({0: Pattern(), 1: Pattern()}, 8),
        ({0: Pattern(window=8), 1: Pattern()}, None),
        ({0: Pattern(window=9), 1: Pattern()}, 8),
        ({0: Pattern(chunk=4), 1: Pattern()}, None),
        ({}, None),
    ],
)
def test_a_text_ends_where_the_cache_drops_what_a_mask_shows(patterns: dict[int, Pattern], limit: int | None) -> None:
    types = ["sliding_attention", "full_attention"]
    config = AutoConfig.for_model("gemma3_text", sliding_window=8, num_hidden_layers=2, layer_types=types)
    assert cached_length(config, patterns) == limit


def test_moshi_whose_cache_slides_and_whose_mask_does_not_holds_a_window() -> None:
    """transformers' generate writes another text there than its own forward without a cache."""
    model = small_model("moshi", {"sliding_window": 8})
    assert open_model(model).runner.max_length == 8
    assert open_model(small_model("moshi", {"sliding_window": 90})).runner.max_length == 90
    assert open_model(small_model("mistral", {"sliding_window": 8})).runner.max_length == 256


def test_a_tower_with_as_many_layers_is_not_taken_for_the_decoder() -> None:
    model = small_model("gemma3")
    assert decoder_layers(model) is model.model.language_model.layers
    open_model(model)
