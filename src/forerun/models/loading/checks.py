"""Checks a model's structure before it runs: whether it is a causal decoder whose only state is keys and values.

The self-check runs a dozen tokens, so it misses effects of long texts: a window, a position at which the rotary scaling
switches. These are read from the configuration here.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from transformers import DynamicCache, PreTrainedModel

from ...errors import UnsupportedModel
from ..packed.layers import decoder_layers, own_attention
from ..packed.mask import Pattern

LAYER_TYPES = frozenset({"full_attention", "sliding_attention", "chunked_attention"})


def check_structure(model: Any) -> None:
    """Raise UnsupportedModel with the reason unless model is a causal decoder that forerun may be able to run."""
    if not isinstance(model, PreTrainedModel):
        raise UnsupportedModel(
            f"forerun runs transformers models, got a {type(model).__name__}; unwrap it first (an adapter: merge it into "
            "its model)"
        )
    name = type(model).__name__
    if not _is_unpacked(model):
        check_quantisation(model.config, name)
    for reason in reasons(model):
        raise UnsupportedModel(f"{name}: {reason}")


def cached_length(config: Any, patterns: Mapping[int, Pattern]) -> int | None:
    """The longest text for which transformers' cache keeps everything that each layer's mask lets it see, None for any.

    A layer that sees everything while its cache drops what lies after a window gives other tokens with a cache than
    without one, and they depend on how a text is split into forwards.
    """
    kept = DynamicCache(config=config).layers
    windows = {layer: getattr(one, "sliding_window", None) for layer, one in enumerate(kept)}
    return min(
        (
            window
            for layer, window in windows.items()
            if window is not None and layer in patterns and not patterns[layer].reaches_at_most(window)
        ),
        default=None,
    )


def reasons(model: PreTrainedModel) -> Iterator[str]:
    """The reasons against running the model, the clearest first; evaluated lazily."""
    config = model.config
    text = config.get_text_config()
    if config.is_encoder_decoder:
        yield "an encoder-decoder; forerun runs causal decoders"
    if model.get_output_embeddings() is None:
        yield "no output head, so it writes no text; load it with AutoModelForCausalLM"
    layer = decoder_layers(model)[0]
    attention = own_attention(layer) or layer
    if any(getattr(module, "is_causal", True) is False for module in (text, *attention.modules())):
        yield "attention in both directions; forerun runs causal decoders"
    yield from _state(model, text)
    yield from _places(model)
    parameters = inspect.signature(layer.forward).parameters
    if {"alibi", "position_bias"} & parameters.keys() and getattr(text, "alibi", True):
        yield "position biases in its attention scores (alibi), which trees and packed rows have no exact form of"
    if getattr(text, "attn_temperature_tuning", False):
        yield "attn_temperature_tuning, which counts rows and not positions"
    yield from _positions(model)


def _positions(model: PreTrainedModel) -> Iterator[str]:
    """Rows of several texts share a forward, so the model must take each row's position, from 0 on."""
    layers = decoder_layers(model)
    around = [module for module in model.modules() if any(inner is layers for inner in module.modules())]
    if not any("position_ids" in inspect.signature(module.forward).parameters for module in around):
        yield "it takes no position_ids, so positions are counted by rows, and rows of several texts have no exact form"
    if any(getattr(module, "create_position_ids_from_input_ids", None) for module in model.modules()):
        yield "positions that start after the padding token's id and leave out padding, which position_ids don't say"


def _state(model: PreTrainedModel, config: Any) -> Iterator[str]:
    """Layers whose state may not be keys and values, or can't take back a rejected token."""
    kinds = getattr(config, "layer_types", None) or getattr(config, "layers_block_type", None) or ()
    others = sorted(set(kinds) - LAYER_TYPES - {"attention"})
    if others:
        yield (
            f"layers of type {', '.join(others)}; recurrent and convolutional state can't take back a rejected token, and "
            f"forerun knows only {', '.join(sorted(LAYER_TYPES))}"
        )
    if getattr(config, "attention_type", None) == "block_sparse":
        yield "attention_type block_sparse, which takes hold in long texts alone; set it to original_full"
    if getattr(model, "_is_stateful", False):
        yield "recurrent state, which can't take back a rejected token"


def _places(model: PreTrainedModel) -> Iterator[str]:
    """The whole model must be on one device."""
    held = {str(parameter.device) for parameter in model.parameters()}
    mapped = {str(place) for place in (getattr(model, "hf_device_map", None) or {}).values()}
    if "meta" in held or len(held) > 1 or len(mapped) > 1:
        places = ", ".join(sorted(mapped if len(mapped) > 1 else held))
        yield f"its weights are spread over {places}; forerun runs a model on one device, load it without device_map"


def check_quantisation(config: Any, name: str) -> None:
    """Raise UnsupportedModel on a quantised checkpoint: its kernels, and how they share weights, are not known here."""
    mark = getattr(config, "quantization_config", None)
    if mark is not None:
        method = mark.get("quant_method") if isinstance(mark, Mapping) else mark.quant_method
        method = getattr(method, "value", method)
        raise UnsupportedModel(
            f"{name} is quantised by {method}, which forerun can't run; load its unquantised checkpoint"
        )


def _is_unpacked(model: PreTrainedModel) -> bool:
    """A GGUF file that transformers unpacked into plain weights is marked as quantised all the same."""
    mark = getattr(model.config, "quantization_config", None)
    plain = all(parameter.is_floating_point() for parameter in model.parameters())
    return plain and getattr(mark, "quant_method", None) == "gguf"
