"""The keys of a GGUF file that change what its model says: each is put into the configuration, or refused by name.

transformers reads some of them and drops the others without a word. A key that isn't listed here may change the result, so
a file with one is refused; keys outside the architecture's own (general.*) only describe.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers.integrations.gguf import GGUF_CONFIG_ARCHS

from ...errors import UnsupportedModel
from ..packed.limits import head_dim_of
from .header import ROPE_FACTORS, Header
from .rope import ROPE_KEYS, settle_rope

# key -> the names that families of transformers have for it
ATTRIBUTES: Mapping[str, tuple[str, ...]] = {
    "context_length": ("max_position_embeddings", "n_positions"),
    "embedding_length": ("hidden_size",),
    "block_count": ("num_hidden_layers",),
    "feed_forward_length": ("intermediate_size", "n_inner"),
    "use_parallel_residual": ("use_parallel_residual", "parallel_attn"),
    "attention.head_count": ("num_attention_heads",),
    "attention.head_count_kv": ("num_key_value_heads", "num_kv_heads"),
    "attention.layer_norm_rms_epsilon": ("rms_norm_eps", "norm_eps", "layer_norm_epsilon"),
    "attention.layer_norm_epsilon": ("layer_norm_epsilon", "layer_norm_eps", "norm_epsilon", "norm_eps"),
    "attention.key_length": ("head_dim",),
    "attention.sliding_window": ("sliding_window",),
    "attn_logit_softcapping": ("attn_logit_softcapping",),
    "final_logit_softcapping": ("final_logit_softcapping",),
    "expert_count": ("num_experts", "num_local_experts"),
    "expert_used_count": ("num_experts_per_tok",),
    "expert_feed_forward_length": ("moe_intermediate_size", "intermediate_size"),
    "expert_shared_feed_forward_length": ("shared_expert_intermediate_size",),
    "expert_weights_norm": ("norm_topk_prob",),
}
# the values that ask for nothing
NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "attention.causal": (True,),
    "attention.sliding_window": (0,),
    "attention.clamp_kqv": (0,),
    "attention.max_alibi_bias": (0,),
    "attention.shared_kv_layers": (0,),
    "attention.output_scale": (0, 1),
    "attn_logit_softcapping": (0,),
    "final_logit_softcapping": (0,),
    "router_logit_softcapping": (0,),
    "expert_count": (0,),
    "expert_used_count": (0,),
    "expert_shared_count": (0,),
    "expert_group_count": (0, 1),
    "expert_group_used_count": (0, 1),
    "expert_weights_scale": (0, 1),
    # softmax, in the families whose experts are read here
    "expert_gating_func": (1,),
    "expert_weights_norm": (False,),
    "leading_dense_block_count": (0,),
    "nextn_predict_layers": (0,),
    "moe_every_n_layers": (0,),
    "interleave_moe_layer_step": (0, 1),
    "pooling_type": (0,),
    "swin_norm": (False,),
    "logit_scale": (0, 1),
    "residual_scale": (0, 1),
    "embedding_scale": (0, 1),
}
DESCRIPTIVE = frozenset({"vocab_size", "tensor_data_layout"})
LISTS = frozenset({"attention.sliding_window_pattern", "rope.dimension_sections"})
# read together with others
WIDTHS = frozenset({"attention.value_length", "attention.scale", "attention.sliding_window_pattern"})


def check_lists(header: Header) -> None:
    """Raise UnsupportedModel on a number that each layer has its own of; transformers' configuration has one for all."""
    if header.architecture in GGUF_CONFIG_ARCHS:
        return
    for key, value in header.own.items():
        if isinstance(value, list) and key not in LISTS:
            raise header.refuse_own(key, "transformers has one value of it for all layers")


def settle_config(header: Header, config: Any) -> None:
    """Change config into what the file says. Raises UnsupportedModel on a key that has no place in it."""
    if header.architecture in GGUF_CONFIG_ARCHS:
        return
    own = header.own
    for key, value in own.items():
        if key in ROPE_KEYS or key in DESCRIPTIVE or key in WIDTHS:
            continue
        if key == "expert_gating_func" and _known(config, "scoring_func"):
            continue
        names = _names(key, config)
        if not names and value not in NEUTRAL.get(key, ()):
            _refuse_unless_equal(header, key, config)
        elif names:
            _put(header, key, config, names[0])
    _settle_widths(header, config)
    _settle_window(header, config)
    _settle_biases(header, config)
    _settle_ids(header, config)
    settle_rope(header, config)


def check_tensors(header: Header, model: Any) -> None:
    """Raise UnsupportedModel on a tensor that model has no place for: transformers would drop it."""
    if header.architecture in GGUF_CONFIG_ARCHS:
        return
    from transformers.modeling_gguf_pytorch_utils import TENSOR_PROCESSORS, TensorProcessor, get_gguf_hf_weights_map

    processor = TENSOR_PROCESSORS.get(header.architecture, TensorProcessor)(config=model.config.to_dict())
    places = get_gguf_hf_weights_map(model, processor).keys()
    unknown = [
        name
        for name in header.tensors
        if not {name, name.removesuffix(".weight")} & places
        and name not in (*ROPE_FACTORS, "output.weight")
        and not name.endswith((".attn_rot_embd", ".attn_rot_embd.weight"))
    ]
    if unknown:
        raise UnsupportedModel(
            f"{header.name} holds tensors that a {type(model).__name__} has no place for, such as {unknown[0]} "
            f"({len(unknown)} in all); without them it would write other texts"
        )


def _names(key: str, config: Any) -> list[str]:
    if key.startswith("expert_") and not any(_known(config, name) for name in ATTRIBUTES["expert_count"]):
        return []
    return [name for name in ATTRIBUTES.get(key, ()) if _known(config, name)]


def _known(config: Any, name: str) -> bool:
    return name in config.to_dict() or name in type(config).attribute_map


def _refuse_unless_equal(header: Header, key: str, config: Any) -> None:
    """A width that the family derives by itself may be written down all the same."""
    if key == "attention.key_length" and header.own[key] == _implied_width(config):
        return
    if key == "attention.head_count_kv" and header.own[key] == config.num_attention_heads:
        return
    if key == "attention.sliding_window" and header.own[key] >= header.own.get("context_length", 0) > 0:
        return
    raise header.refuse_own(key, f"forerun can't apply this to a {config.model_type}, and it changes the result")


def _put(header: Header, key: str, config: Any, name: str) -> None:
    value = header.own[key]
    if key in ("attention.sliding_window", "attn_logit_softcapping", "final_logit_softcapping"):
        value = value or None
    setattr(config, name, value)


def _implied_width(config: Any) -> int:
    return int(config.hidden_size // config.num_attention_heads)


def _settle_widths(header: Header, config: Any) -> None:
    """Widths and the scale of attention, with what the format implies where they are left out."""
    own, kind = header.own, config.model_type
    if _known(config, "head_dim") and "attention.key_length" not in own:
        config.head_dim = _implied_width(config)
    width = head_dim_of(config)
    if own.get("attention.value_length", width) != width:
        raise header.refuse_own("attention.value_length", f"a {kind} has values as wide as its keys, here {width}")
    scale = own.get("attention.scale") or width**-0.5
    if _known(config, "query_pre_attn_scalar"):
        # the largest of both families divide by the width of the stream
        large = config.num_hidden_layers in (46, 62) and "attention.scale" not in own
        config.query_pre_attn_scalar = _implied_width(config) if large else round(scale**-2)
        if abs(scale * config.query_pre_attn_scalar**0.5 - 1) > 1e-3 and not large:
            raise header.refuse_own("attention.scale", f"a {kind} scales by 1 / sqrt(n) of a whole number n")
    elif abs(scale * width**0.5 - 1) > 1e-4:
        raise header.refuse_own("attention.scale", f"a {kind} scales by 1 / sqrt({width}) alone")


def _settle_window(header: Header, config: Any) -> None:
    """Which layers see a window only: every n-th does not, or each layer says."""
    own, window = header.own, getattr(config, "sliding_window", None)
    pattern = own.get("attention.sliding_window_pattern")
    if pattern is None:
        kinds = getattr(config, "layer_types", None) or ("sliding_attention",)
        said = own.get("attention.sliding_window") or own.get("context_length", 0)
        if said < own.get("context_length", 0) and "sliding_attention" not in kinds:
            raise header.refuse_own("attention.sliding_window", f"a {config.model_type} needs to be told its layers")
        return
    if not _known(config, "layer_types") or window is None:
        raise header.refuse_own("attention.sliding_window_pattern", f"a {config.model_type} has no such layers")
    count = config.num_hidden_layers
    windowed = (
        pattern if isinstance(pattern, list) else [not pattern or (layer + 1) % pattern for layer in range(count)]
    )
    config.layer_types = ["sliding_attention" if one else "full_attention" for one in windowed[:count]]


def _settle_biases(header: Header, config: Any) -> None:
    """Biases are no key: the tensors are there or not."""
    for tensor, name in (("blk.0.attn_q.bias", "attention_bias"), ("blk.0.ffn_up.bias", "mlp_bias")):
        if _known(config, name):
            setattr(config, name, tensor in header.tensors)


def _settle_ids(header: Header, config: Any) -> None:
    """What the file has no id for has none, and not the family's usual one."""
    if header.keys.get("tokenizer.ggml.model") == "llama":
        # the usual ones of this kind of vocabulary are the format's own
        return
    for name, key in (("bos", "bos"), ("eos", "eos"), ("pad", "padding")):
        if f"tokenizer.ggml.{key}_token_id" not in header.keys:
            setattr(config, f"{name}_token_id", None)
