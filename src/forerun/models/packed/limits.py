"""A model's sizes by its configuration: the width of a head, the longest text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def head_dim_of(config: Any) -> int:
    """The width of an attention head, given or implied."""
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def max_length_of(config: Any) -> int | None:
    """The most tokens that a text may hold, None where nothing limits it.

    A packed call mixes texts, so a rotary scaling that depends on the call's longest position is capped where it would
    switch: dynamic at max_position_embeddings, longrope and PhiMoE's mscale at original_max_position_embeddings.
    """
    text = config.get_text_config()
    limits = [getattr(text, "max_position_embeddings", None)]
    limits += [rope.get("original_max_position_embeddings") for rope in _ropes(text) if _switches(rope)]
    return min((int(limit) for limit in limits if limit is not None), default=None)


def _switches(rope: Mapping[str, Any]) -> bool:
    return rope["rope_type"] == "longrope" or "long_mscale" in rope


def _ropes(config: Any) -> list[Mapping[str, Any]]:
    """The rotary parameters: one set for all layers, or one for each layer type."""
    parameters = getattr(config, "rope_parameters", None) or {}
    sets = [parameters, *parameters.values()]
    return [rope for rope in sets if isinstance(rope, Mapping) and "rope_type" in rope]
