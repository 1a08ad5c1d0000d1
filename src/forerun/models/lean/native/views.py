"""The structures that native code reads, field by field as cpp/views.h has them."""

from __future__ import annotations

import ctypes
from ctypes import c_double, c_float, c_int32, c_int64, c_void_p
from typing import Any, ClassVar, TypeAlias, final

Fields: TypeAlias = list[tuple[str, Any]]


@final
class MatrixView(ctypes.Structure):
    _fields_: ClassVar[Fields] = [
        ("data", c_void_p),
        ("bias", c_void_p),
        *((name, c_int32) for name in ("features", "columns", "bits", "halves")),
    ]


@final
class LayerView(ctypes.Structure):
    _fields_: ClassVar[Fields] = [
        *((name, MatrixView) for name in ("qkv", "out", "gate_up", "down")),
        *((name, c_void_p) for name in ("before_attention", "after_attention", "before_mlp", "after_mlp")),
        *((name, c_void_p) for name in ("query_norm", "key_norm")),
        *((name, c_int32) for name in ("norm_each_head", "window", "rope", "unused")),
    ]


@final
class ModelView(ctypes.Structure):
    _fields_: ClassVar[Fields] = [
        *(
            (name, c_int32)
            for name in ("layers", "width", "heads", "kv_heads", "head_dim", "mlp", "vocab", "activation")
        ),
        *((name, c_float) for name in ("eps", "embedding_scale", "residual_scale", "logit_scale")),
        ("embedding", MatrixView),
        ("final_norm", c_void_p),
        ("layer", ctypes.POINTER(LayerView)),
        ("fuse", MatrixView),
        ("state_norm", c_void_p),
    ]


@final
class PartView(ctypes.Structure):
    _fields_: ClassVar[Fields] = [
        *((name, c_void_p) for name in ("keys", "values", "depths", "ancestors", "entry")),
        ("capacity", c_int64),
        *((name, c_int32) for name in ("committed", "first", "n", "resumed", "enter", "half")),
    ]


@final
class CallView(ctypes.Structure):
    _fields_: ClassVar[Fields] = [
        ("model", ctypes.POINTER(ModelView)),
        ("parts", ctypes.POINTER(PartView)),
        *((name, c_void_p) for name in ("tokens", "skips_attention", "skips_mlp", "wanted", "taps", "tapped", "turns")),
        ("head", ctypes.POINTER(MatrixView)),
        *((name, c_void_p) for name in ("ids", "logits", "hidden", "best_values", "best_tokens")),
        *(
            (name, c_int32)
            for name in ("num_parts", "rows", "end", "num_wanted", "num_taps", "terms", "threads", "unused")
        ),
    ]


@final
class ChainView(ctypes.Structure):
    _fields_: ClassVar[Fields] = [
        *((name, c_void_p) for name in ("most", "made", "tokens", "shares")),
        *((name, c_int32) for name in ("width", "unused")),
    ]


@final
class FiltersView(ctypes.Structure):
    _fields_: ClassVar[Fields] = [
        ("temperature", c_float),
        ("top_k", c_int32),
        ("top_p", c_double),
        ("min_p", c_double),
    ]
