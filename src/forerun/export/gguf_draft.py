"""A draft model as a GGUF file for llama.cpp, whose tokenizer is that of the target's GGUF file, key for key."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import UnsupportedModel, UnsupportedOption
from ..models.gguf.tokenizer import PREFIX
from ..models.lean.draft_weights import q4_0_blocks

# what transformers calls a family -> llama.cpp's name; both compute the same from the same keys
FAMILIES: Mapping[str, str] = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
# llama.cpp turns neighbouring pairs of a head's columns in these, transformers the two halves
PAIRED = frozenset({"llama"})
# of the matrices of layers, and of embeddings and head
FORMS: Mapping[str, tuple[str, str]] = {
    "f32": ("F32", "F32"),
    "f16": ("F16", "F16"),
    "q8_0": ("Q8_0", "Q8_0"),
    "q4_0": ("Q4_0", "Q8_0"),
}


def check_family(config: Any, form: str) -> None:
    """Raises UnsupportedModel or UnsupportedOption where write_gguf can't write such a model in this form."""
    if form not in FORMS:
        raise UnsupportedOption(f"a GGUF draft holds weights as {', '.join(FORMS)}, got {form!r}")
    if config.model_type not in FAMILIES:
        raise UnsupportedModel(
            f"drafts of the family {config.model_type} can't be written as GGUF, those of {', '.join(FAMILIES)} can"
        )
    kind = config.rope_parameters.get("rope_type", "default")
    if kind != "default":
        raise UnsupportedModel(f"a draft whose positions are scaled ({kind}) can't be written as GGUF")


def write_gguf(model: Any, name: str, tokenizer: Path, form: str, file: Path) -> None:
    """tokenizer: the GGUF file that llama.cpp runs the target from. The file is written as it is named."""
    import gguf

    config = model.config
    check_family(config, form)
    architecture = FAMILIES[config.model_type]
    writer = gguf.GGUFWriter(file, architecture)
    _write_keys(writer, config, name)
    for key, field in gguf.GGUFReader(tokenizer).fields.items():
        if key.startswith(PREFIX.split(".")[0]):
            kinds = field.types
            writer.add_key_value(key, field.contents(), kinds[0], kinds[-1] if len(kinds) > 1 else None)
    kind = next(one for one, known in gguf.MODEL_ARCH_NAMES.items() if known == architecture)
    places = gguf.get_tensor_name_map(kind, config.num_hidden_layers)
    for known, value in _weights(model).items():
        place = places.get_name(known, try_suffixes=(".weight", ".bias"))
        if place is None:
            raise UnsupportedModel(
                f"{name} holds a weight {known} that GGUF has no place for in the family {architecture}"
            )
        _add(writer, place, _turned(known, value, config), form)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _write_keys(writer: Any, config: Any, name: str) -> None:
    width = config.head_dim if getattr(config, "head_dim", None) else config.hidden_size // config.num_attention_heads
    writer.add_type("model")
    writer.add_name(name)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(float(config.rope_parameters["rope_theta"]))
    writer.add_rope_dimension_count(width)
    writer.add_key_length(width)
    writer.add_value_length(width)
    writer.add_vocab_size(config.vocab_size)


def _weights(model: Any) -> dict[str, Tensor]:
    """Tied tables once, as llama.cpp has them, which takes the embeddings where there is no head."""
    return {name: value.detach().float() for name, value in model.named_parameters()}


def _turned(name: str, value: Tensor, config: Any) -> Tensor:
    """A query's or key's rows in llama.cpp's order."""
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    found = [count for part, count in heads.items() if f".{part}." in name]
    if not found or config.model_type not in PAIRED:
        return value
    return value.view(found[0], 2, -1, *value.shape[1:]).transpose(1, 2).reshape(value.shape)


def _add(writer: Any, place: str, value: Tensor, form: str) -> None:
    import gguf

    kind = "F32" if value.ndim == 1 else FORMS[form][place in ("token_embd.weight", "output.weight")]
    if kind in ("F32", "F16"):
        writer.add_tensor(place, value.to(torch.float16 if kind == "F16" else torch.float32).numpy())
        return
    numeric = gguf.GGMLQuantizationType[kind]
    block = gguf.GGML_QUANT_SIZES[numeric][0]
    if value.shape[1] % block:
        raise UnsupportedOption(f"{kind} needs columns in groups of {block} and {place} has {value.shape[1]}; take f16")
    packed = q4_0_blocks(value).numpy() if kind == "Q4_0" else gguf.quants.quantize(value.numpy(), numeric)
    writer.add_tensor(place, np.ascontiguousarray(packed), raw_dtype=numeric)
