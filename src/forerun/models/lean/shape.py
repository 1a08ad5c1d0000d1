"""Which models the lean decoder runs, and their shape in one description.

A family is listed here with where its layers normalise and which numbers of its configuration count. What isn't listed, or
asks for something that the lean decoder lacks, runs on transformers' own modules.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ...errors import UnsupportedModel
from ..packed.limits import head_dim_of, max_length_of
from ..packed.mask import Pattern

# Rotary scalings that don't depend on how long the text is.
STATIC_ROPE = frozenset({"default", "linear", "llama3", "yarn"})
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "gelu_pytorch_tanh": functools.partial(F.gelu, approximate="tanh"),
}
PATTERNS = {"full_attention": False, "sliding_attention": True}


@dataclass(frozen=True, slots=True)
class Norms:
    """The names of a layer's norms before and after its attention and its MLP; None where there is none.

    offset is added to every norm's weight.
    """

    before_attention: str | None = "input_layernorm"
    after_attention: str | None = None
    before_mlp: str | None = "post_attention_layernorm"
    after_mlp: str | None = None
    offset: float = 0.0


PRE = Norms()
POST = Norms(None, "post_attention_layernorm", None, "post_feedforward_layernorm")
BOTH = Norms(
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
    offset=1.0,
)
FAMILIES: dict[str, Norms] = {
    "llama": PRE,
    "mistral": PRE,
    "qwen2": PRE,
    "qwen3": PRE,
    "smollm3": PRE,
    "phi3": PRE,
    "granite": PRE,
    "gemma": Norms(offset=1.0),
    "gemma3_text": BOTH,
    "olmo2": POST,
    "olmo3": POST,
}
SCALED_EMBEDDING = frozenset({"gemma", "gemma3_text"})


@dataclass(frozen=True, slots=True)
class Shape:
    """The numbers of a decoder. inner: the MLP's width.

    patterns and ropes hold one entry a layer; a rope is a layer type, "" or None (none).
    """

    num_layers: int
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    vocab_size: int
    max_length: int | None
    eps: float
    scaling: float
    activation: Callable[[Tensor], Tensor]
    norms: Norms
    patterns: tuple[Pattern, ...]
    ropes: tuple[str | None, ...]
    embedding_scale: float
    residual_scale: float
    logit_scale: float

    @property
    def group(self) -> int:
        """Query heads for each key head."""
        return self.heads // self.kv_heads

    @property
    def all_heads(self) -> int:
        """Heads of queries, keys and values together."""
        return self.heads + 2 * self.kv_heads


def lean_applies(config: Any) -> str | None:
    """None if the lean decoder runs this configuration, else the reason why not."""
    if config.model_type not in FAMILIES:
        return f"{config.model_type} is not among the families of the lean decoder: {', '.join(FAMILIES)}"
    if _activation_name(config) not in ACTIVATIONS:
        return f"its activation is {_activation_name(config)}; the lean decoder knows {', '.join(ACTIVATIONS)}"
    for rope in _rope_parameters(config):
        if rope.get("rope_type", "default") not in STATIC_ROPE and not _same_at_all_lengths(rope):
            return f"its rotary scaling {rope['rope_type']} depends on the length of the text"
    if unknown := set(_layer_types(config)) - set(PATTERNS):
        return f"its layers are of the type {', '.join(sorted(unknown))}"
    for name in ("attn_logit_softcapping", "final_logit_softcapping", "use_bidirectional_attention"):
        if getattr(config, name, None):
            return f"its configuration sets {name}"
    return None


def shape_of(config: Any) -> Shape:
    """Read a configuration. Raises UnsupportedModel where lean_applies says no."""
    if reason := lean_applies(config):
        raise UnsupportedModel(f"the lean decoder can't run this model: {reason}")
    kind = config.model_type
    heads = config.num_attention_heads
    head_dim = head_dim_of(config)
    rotated = getattr(config, "no_rope_layers", None) or [1] * config.num_hidden_layers
    types = _layer_types(config)
    named = _rope_by_type(config)
    scaling = head_dim**-0.5
    if kind == "gemma3_text":
        scaling = config.query_pre_attn_scalar**-0.5
    return Shape(
        num_layers=config.num_hidden_layers,
        width=config.hidden_size,
        heads=heads,
        kv_heads=config.num_key_value_heads or heads,
        head_dim=head_dim,
        mlp=config.intermediate_size,
        vocab_size=config.vocab_size,
        max_length=max_length_of(config),
        eps=config.rms_norm_eps,
        scaling=getattr(config, "attention_multiplier", scaling),
        activation=ACTIVATIONS[_activation_name(config)],
        norms=FAMILIES[kind],
        patterns=tuple(Pattern(window=config.sliding_window if PATTERNS[name] else None) for name in types),
        ropes=tuple((name if named else "") if turned else None for name, turned in zip(types, rotated, strict=True)),
        embedding_scale=_embedding_scale(config),
        residual_scale=getattr(config, "residual_multiplier", 1.0),
        logit_scale=1 / getattr(config, "logits_scaling", 1.0),
    )


def _activation_name(config: Any) -> str:
    # gemma3 calls it by the other name
    return str(getattr(config, "hidden_activation", None) or config.hidden_act)


def _layer_types(config: Any) -> list[str]:
    window = getattr(config, "sliding_window", None)
    default = ["full_attention" if window is None else "sliding_attention"] * config.num_hidden_layers
    return list(getattr(config, "layer_types", None) or default)


def _rope_by_type(config: Any) -> bool:
    """Whether each type of layer has a rotation of its own."""
    return any(isinstance(value, dict) for value in config.rope_parameters.values())


def _rope_parameters(config: Any) -> list[dict[str, Any]]:
    parameters = config.rope_parameters
    return list(parameters.values()) if _rope_by_type(config) else [parameters]


def _same_at_all_lengths(rope: dict[str, Any]) -> bool:
    return rope["rope_type"] == "longrope" and list(rope["short_factor"]) == list(rope["long_factor"])


def _embedding_scale(config: Any) -> float:
    if config.model_type in SCALED_EMBEDDING:
        # rounded as the model was trained
        return float(torch.tensor(config.hidden_size**0.5, dtype=config.dtype or torch.float32))
    return float(getattr(config, "embedding_multiplier", 1.0))
