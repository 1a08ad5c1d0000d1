"""GGUF files straight into the lean decoder: 4-bit blocks keep their codes, and no float copy of the model is made.

Q4_0, Q4_1 and Q4_K hold 32 columns at a time as code * scale + minimum, the grid of the int4 kernels. The native kernels
take scales in float16, as Q4_0 and Q4_1 have them; torch's round them to bfloat16. All other types, Q8_0 among them (its
scales are by block, the int8 kernels' by row), are unpacked to floats and put on the grid that is asked for.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from ...errors import InvalidModelFile, UnsupportedModel
from ..gguf.header import ROPE_FACTORS
from ..gguf.shards import shards_of
from .build import Source
from .runner import LeanRunner
from .shape import Norms, shape_of
from .weights import Int4Grid, Matrix, check_weights

# Whether a file of this architecture has the components that rotate together side by side.
PAIRS_TOGETHER = {"llama": True, "qwen2": False, "qwen3": False, "gemma3": False}
# The same, by transformers' names.
FAMILIES = frozenset({"llama", "qwen2", "qwen3", "gemma3_text"})
NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def lean_from_gguf(file: Path, config: Any, weights: str = "int4", name: str = "") -> LeanRunner:
    """Open a GGUF file on the CPU. config is its transformers configuration, with what its keys say (gguf_keys).

    Raises UnsupportedModel on an architecture or a tensor that has no place here, InvalidModelFile on a broken file.
    """
    check_weights(weights)
    shape = shape_of(config)
    rope = str(config.rope_parameters.get("rope_type", "default"))
    source = GgufSource(file, shape.norms, keep_grid=weights == "int4", rope_type=rope)
    return LeanRunner.from_source(source, config, torch.device("cpu"), weights, name or file.stem)


@final
class GgufSource(Source):
    """The tensors of a file, read one by one. keep_grid gives 4-bit tensors as their codes.

    rope_type is the configuration's; where it is longrope, it holds the file's frequency factors.
    """

    def __init__(self, file: Path, norms: Norms, keep_grid: bool, rope_type: str = "default") -> None:
        import gguf

        try:
            readers = [gguf.GGUFReader(shard) for shard in shards_of(file)]
            architecture = str(readers[0].fields["general.architecture"].contents())
        except (ValueError, KeyError, IndexError) as error:
            raise InvalidModelFile(
                f"{file} can't be read; it is corrupt or truncated, download it again ({error})"
            ) from error
        if architecture not in PAIRS_TOGETHER:
            raise UnsupportedModel(
                f"{file.name} holds a {architecture}; read straight from GGUF are {', '.join(PAIRS_TOGETHER)}"
            )
        self.pairs_together = PAIRS_TOGETHER[architecture]
        names = NAMES | {
            ours: theirs
            for ours, theirs in (
                ("attn_norm", norms.before_attention),
                ("post_attention_norm", norms.after_attention),
                ("ffn_norm", norms.before_mlp),
                ("post_ffw_norm", norms.after_mlp),
            )
            if theirs is not None
        }
        self._keep_grid = keep_grid
        tensors = [tensor for reader in readers for tensor in reader.tensors]
        self._tensors = {_full_name(tensor.name, names): tensor for tensor in tensors}
        for name in ROPE_FACTORS:
            # held by the configuration, or nothing to hold
            if name in self._tensors and (rope_type == "longrope" or (self._tensors[name].data == 1).all()):
                del self._tensors[name]

    def has(self, name: str) -> bool:
        return name in self._tensors

    def take(self, name: str) -> Matrix:
        tensor = self._tensors.pop(name, None)
        if tensor is None:
            raise UnsupportedModel(f"the GGUF file has no tensor for {name}, which the lean decoder needs")
        kind = tensor.tensor_type.name
        if self._keep_grid and kind in GRIDS:
            return GRIDS[kind](torch.from_numpy(np.array(tensor.data)))
        import gguf

        return torch.from_numpy(gguf.quants.dequantize(tensor.data, tensor.tensor_type).copy())

    def dtypes(self) -> frozenset[torch.dtype]:
        return frozenset({torch.float32})

    def left(self) -> list[str]:
        return sorted(self._tensors)


def _full_name(name: str, names: dict[str, str]) -> str:
    """transformers' name of a tensor; its own where there is none."""
    *block, own, kind = name.split(".")
    prefix = f"model.layers.{block[1]}." if block else ""
    return f"{prefix}{names[own]}.{kind}" if own in names else name


def _q4_0(rows: Tensor) -> Int4Grid:
    """Blocks of 18 bytes: scale, 16 bytes of codes; the value is (code - 8) * scale."""
    blocks = rows.view(rows.shape[0], -1, 18)
    scales = _halves(blocks[..., :2])
    return Int4Grid(_codes(blocks[..., 2:]), scales, -8 * scales)


def _q4_1(rows: Tensor) -> Int4Grid:
    """Blocks of 20 bytes: scale, minimum, 16 bytes of codes."""
    blocks = rows.view(rows.shape[0], -1, 20)
    return Int4Grid(_codes(blocks[..., 4:]), _halves(blocks[..., :2]), _halves(blocks[..., 2:4]))


def _q4_k(rows: Tensor) -> Int4Grid:
    """Blocks of 144 bytes for 8 groups: scale and minimum of the 6-bit scales and minima, those, 128 bytes of codes."""
    import gguf

    count = rows.shape[0]
    blocks = rows.view(count, -1, 144)
    packed = blocks[..., 4:16].reshape(-1, 12).contiguous().numpy()
    scales, minima = (torch.from_numpy(part).float() for part in gguf.quants.Q4_K.get_scale_min(packed))
    scales = scales.view(count, -1, 8) * _halves(blocks[..., :2])[..., None]
    minima = minima.view(count, -1, 8) * -_halves(blocks[..., 2:4])[..., None]
    # 32 bytes hold two groups, one in the low and one in the high halves
    codes = _codes(blocks[..., 16:].reshape(count, -1, 32))
    return Int4Grid(codes, scales.view(count, -1), minima.view(count, -1))


GRIDS = {"Q4_0": _q4_0, "Q4_1": _q4_1, "Q4_K": _q4_k}


def _halves(pairs: Tensor) -> Tensor:
    """Bytes [..., 2] as float16, in float32 [...]."""
    return pairs.contiguous().view(torch.float16).float().squeeze(-1)


def _codes(packed: Tensor) -> Tensor:
    """Bytes [rows, blocks, size]: low halves are a block's first `size` codes, high halves its last."""
    return torch.cat([packed & 15, packed >> 4], -1).view(packed.shape[0], -1)
