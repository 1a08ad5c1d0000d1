"""What else a family's configuration can ask for: each switch turned, windows, soft caps, rotary scalings.

These are the places where a family is right by default and wrong with another checkpoint of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..models.packed.limits import head_dim_of
from .small import LAYERS, WINDOW, small_config

# switches that change no forward of a decoder, or that say what kind of model it is
LEFT = re.compile(
    r"use_cache|output_.*|return_dict|is_encoder_decoder|is_decoder|add_cross_attention|torchscript|use_bfloat16|"
    r"tie_encoder_decoder|gradient_checkpointing|.*dropout.*|_.*|use_mambapy|.*kernels.*|cross_attention_.*|remove_.*"
)
LIMIT = 32  # where rotary scalings switch that depend on how long a text is, so that forerun ends it there
THETA = 10000.0

ROPES: dict[str, dict[str, Any]] = {
    "linear": {"factor": 4.0},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": LIMIT},
    "llama3": {
        "factor": 4.0,
        "original_max_position_embeddings": LIMIT,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
    },
    "dynamic": {"factor": 4.0, "original_max_position_embeddings": LIMIT},
    # the two scales are PhiMoE's
    "longrope": {
        "factor": 4.0,
        "original_max_position_embeddings": LIMIT,
        "short_mscale": 1.0,
        "long_mscale": 1.5,
    },
}
# fields that are off in most checkpoints and on in some
ASKED: dict[str, Any] = {
    "sliding_window": WINDOW,
    "attention_chunk_size": WINDOW,
    "attn_logit_softcapping": 0.5,
    "final_logit_softcapping": 2.0,
    "clip_qkv": 0.5,
    "logits_scaling": 3.0,
    "residual_multiplier": 0.5,
}


def variants(family: str) -> dict[str, Mapping[str, Any]]:
    """Name -> changes of the small configuration, to be tried one at a time."""
    config = small_config(family).get_text_config()
    fields = config.to_dict()
    found: dict[str, Mapping[str, Any]] = {
        f"{name}={not value}": {name: not value}
        for name, value in fields.items()
        if isinstance(value, bool) and not LEFT.fullmatch(name)
    }
    for name, value in ASKED.items():
        if name in fields and fields[name] != value:
            found[f"{name}={value}"] = {name: value}
    if "use_sliding_window" in fields:
        window = {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": LAYERS // 2}
        found["windows in half of the layers"] = {**window, "layer_types": None}
    rope = fields.get("rope_parameters")
    if isinstance(rope, Mapping):
        found.update(_ropes(config, rope))
    return found


def _ropes(config: Any, rope: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Every rotary scaling, for all layer types alike."""
    head_dim = head_dim_of(config)
    nested = {name: own for name, own in rope.items() if isinstance(own, Mapping)}
    found: dict[str, Mapping[str, Any]] = {}
    for kind, scaling in ROPES.items():
        changes: dict[str, Any] = {}
        for name, own in (nested or {"": rope}).items():
            base = {"rope_theta": THETA, **own, "rope_type": kind, **scaling}
            if kind == "longrope":
                width = int(head_dim * base.get("partial_rotary_factor", 1.0)) // 2
                base |= {"short_factor": [1.0] * width, "long_factor": [4.0] * width}
            changes[name] = base
        all_changes: dict[str, Any] = {"rope_parameters": changes if nested else changes[""]}
        if kind == "dynamic":
            all_changes["max_position_embeddings"] = LIMIT
        found[f"rope_type={kind}"] = all_changes
    return found
