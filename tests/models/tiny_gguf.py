"""A Llama of a few kilobytes as a GGUF file, byte-level vocabulary included."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
from tokenizers import pre_tokenizers

END = 257
TEMPLATE = "{% for message in messages %}{{ '<' + message.role + '>' + message.content }}{% endfor %}"


def write_gguf(
    path: Path, architecture: str = "llama", layers: int = 2, seed: int = 0, kind: str = "F32", tied: bool = False
) -> Path:
    """Random weights, matrices of the given type; END ends a text."""
    rng = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(128)
    writer.add_embedding_length(32)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(64)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(8)
    writer.add_layer_norm_rms_eps(1e-5)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = [*alphabet, "th", "<end>"]
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.NORMAL] * END + [gguf.TokenType.CONTROL])
    writer.add_token_merges(["t h"])
    writer.add_eos_token_id(END)
    writer.add_bos_token_id(END)
    writer.add_chat_template(TEMPLATE)
    shapes = {"token_embd": (END + 1, 32), "output": (END + 1, 32), "output_norm": (32,)}
    for layer in range(layers):
        shapes |= {
            f"blk.{layer}.attn_q": (32, 32),
            f"blk.{layer}.attn_k": (16, 32),
            f"blk.{layer}.attn_v": (16, 32),
            f"blk.{layer}.attn_output": (32, 32),
            f"blk.{layer}.attn_norm": (32,),
            f"blk.{layer}.ffn_gate": (64, 32),
            f"blk.{layer}.ffn_up": (64, 32),
            f"blk.{layer}.ffn_down": (32, 64),
            f"blk.{layer}.ffn_norm": (32,),
        }
    quantised = gguf.GGMLQuantizationType[kind]
    for name, shape in shapes.items():
        values = rng.normal(scale=0.25, size=shape) if len(shape) == 2 else np.ones(shape)
        values = values.astype(np.float32)
        if tied and name == "output":
            continue
        if len(shape) == 2 and kind != "F32":
            writer.add_tensor(f"{name}.weight", gguf.quants.quantize(values, quantised), raw_dtype=quantised)
        else:
            writer.add_tensor(f"{name}.weight", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
