"""Rotary positions as a GGUF file has them: base, scaling, factors kept as tensors, rotated share of a head."""

from __future__ import annotations

import math
from typing import Any

from ..packed.limits import head_dim_of
from .header import Header

ROPE_KEYS = frozenset(
    {
        "rope.freq_base",
        "rope.freq_base_swa",
        "rope.dimension_count",
        "rope.dimension_count_swa",
        "rope.dimension_sections",
        "rope.scale_linear",
        "rope.scaling.type",
        "rope.scaling.factor",
        "rope.scaling.attn_factor",
        "rope.scaling.original_context_length",
        "rope.scaling.finetuned",
        "rope.scaling.yarn_log_multiplier",
        "rope.scaling.yarn_ext_factor",
        "rope.scaling.yarn_attn_factor",
        "rope.scaling.yarn_beta_fast",
        "rope.scaling.yarn_beta_slow",
    }
)
# families that may rotate a part of each head
PARTIAL = frozenset({"phi3", "stablelm", "nemotron"})
NEAR_THETA = 10000.0


def settle_rope(header: Header, config: Any) -> None:
    """Change config's rotary parameters into what the file says. Raises UnsupportedModel on what has no place there."""
    own = header.own
    given = getattr(config, "rope_parameters", None)
    if not given:
        for key in sorted(ROPE_KEYS & own.keys()):
            if own[key] not in (0, 1, "none"):
                raise header.refuse_own(key, f"a {config.model_type} has no rotary positions")
        return
    scaling = _scaling(header, config)
    nested = {name: dict(one) for name, one in given.items() if isinstance(one, dict)}
    near = own.get("rope.freq_base_swa")
    if nested:
        nested["full_attention"] = _with(nested["full_attention"], own.get("rope.freq_base"), scaling)
        nested["sliding_attention"] = _with(nested["sliding_attention"], near or NEAR_THETA, {})
        config.rope_parameters = nested
    else:
        if near not in (None, own.get("rope.freq_base")):
            raise header.refuse_own("rope.freq_base_swa", f"a {config.model_type} rotates all layers alike")
        config.rope_parameters = _with(given, own.get("rope.freq_base"), scaling | _share(header, config))
    if scaling["rope_type"] == "longrope" and "original_max_position_embeddings" in config.to_dict():
        config.original_max_position_embeddings = scaling["original_max_position_embeddings"]


def _with(given: dict[str, Any], base: float | None, scaling: dict[str, Any]) -> dict[str, Any]:
    theta = given["rope_theta"] if base is None else float(base)
    return {"rope_type": "default", **scaling, "rope_theta": theta}


def _share(header: Header, config: Any) -> dict[str, float]:
    """How much of each head is rotated: all of it unless the file says less."""
    own = header.own
    width = head_dim_of(config)
    turned = own.get("rope.dimension_count", width)
    if own.get("rope.dimension_count_swa", turned) != turned:
        raise header.refuse_own("rope.dimension_count_swa", f"a {config.model_type} rotates all layers alike")
    if any(own.get("rope.dimension_sections", ())):
        raise header.refuse_own("rope.dimension_sections", f"a {config.model_type} has positions in one dimension")
    if config.model_type in PARTIAL:
        if "partial_rotary_factor" in config.to_dict():
            config.partial_rotary_factor = turned / width
        return {"partial_rotary_factor": turned / width}
    if turned != getattr(config, "rotary_dim", width):
        raise header.refuse_own("rope.dimension_count", f"a {config.model_type} rotates whole heads, here {width} wide")
    return {}


def _scaling(header: Header, config: Any) -> dict[str, Any]:
    own, factors = header.own, header.factors
    factor = float(own.get("rope.scaling.factor") or own.get("rope.scale_linear") or 1)
    kind = own.get("rope.scaling.type", "linear")
    attention = float(own.get("rope.scaling.attn_factor") or 1)
    if own.get("rope.scaling.yarn_log_multiplier"):
        raise header.refuse_own("rope.scaling.yarn_log_multiplier", f"a {config.model_type} has no such factor")
    if kind == "yarn":
        if factors:
            raise header.refuse_own(
                "rope.scaling.type", f"it holds {', '.join(factors)}, too, and only one can be meant"
            )
        return _yarn(header, factor, attention)
    if "rope_factors_long.weight" in factors:
        return _longrope(header, config, "rope_factors_long.weight", "rope_factors_short.weight", attention)
    if kind not in ("none", "linear"):
        raise header.refuse_own("rope.scaling.type", "known are none, linear, yarn, and longrope with its factors")
    if "rope_freqs.weight" in factors and set(factors["rope_freqs.weight"]) != {1.0}:
        # one set of factors for texts of every length
        scaled = [one * (factor if kind == "linear" else 1) for one in factors["rope_freqs.weight"]]
        original = config.max_position_embeddings
        return {
            "rope_type": "longrope",
            "short_factor": scaled,
            "long_factor": scaled,
            "original_max_position_embeddings": original,
            "attention_factor": attention,
        }
    if attention != 1:
        raise header.refuse_own(
            "rope.scaling.attn_factor", "transformers scales attention so with yarn or longrope only"
        )
    return {"rope_type": "linear", "factor": factor} if factor != 1 and kind == "linear" else {"rope_type": "default"}


def _longrope(header: Header, config: Any, long: str, short: str, attention: float) -> dict[str, Any]:
    return {
        "rope_type": "longrope",
        "short_factor": header.factors[short],
        "long_factor": header.factors[long],
        "original_max_position_embeddings": _original_length(header, config.max_position_embeddings),
        "attention_factor": attention,
    }


def _yarn(header: Header, factor: float, attention: float) -> dict[str, Any]:
    own = header.own
    if own.get("rope.scaling.yarn_ext_factor", 1) not in (-1, 1):
        raise header.refuse_own(
            "rope.scaling.yarn_ext_factor", "transformers has no such factor; only 1 can be applied"
        )
    attention *= float(own.get("rope.scaling.yarn_attn_factor") or 1)
    return {
        "rope_type": "yarn",
        "factor": factor,
        "original_max_position_embeddings": _original_length(header, own.get("context_length")),
        "beta_fast": float(own.get("rope.scaling.yarn_beta_fast", 32)),
        "beta_slow": float(own.get("rope.scaling.yarn_beta_slow", 1)),
        "attention_factor": attention * (1 + 0.1 * math.log(max(factor, 1))),
    }


def _original_length(header: Header, otherwise: Any) -> int:
    return int(header.own.get("rope.scaling.original_context_length") or otherwise)
