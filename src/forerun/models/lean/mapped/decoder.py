"""A decoder as a description and a list of tensors, and back.

An object of one of the known classes is described by its attributes, whatever they are: a new form of weights needs its
class named here and no more. Tensors come back as they are given, so that matrices lie where a file is mapped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

from ..build import Decoder
from ..layers import HeadNorm, Layer, Norm
from ..native.dense import Dense
from ..native.library import Library
from ..native.matrix import Repacked
from ..shape import Shape

KINDS: dict[str, type[Any]] = {kind.__name__: kind for kind in (Decoder, Layer, Norm, HeadNorm, Repacked, Dense)}
# what is not of the file: the kernels at hand, and the shape that the configuration gives
GIVEN: dict[str, type[Any]] = {"library": Library, "shape": Shape}


class Undescribed(Exception):
    """The decoder holds something that has no description."""


def describe(decoder: Decoder) -> tuple[Any, list[Tensor]]:
    """What can be written as JSON, and the tensors that it names by their numbers. Raises Undescribed."""
    tensors: list[Tensor] = []
    seen: dict[int, int] = {}

    def told(value: Any) -> Any:
        if value is None or type(value) in (bool, int, float, str):
            return value
        if isinstance(value, Tensor):
            tensors.append(value)
            return {"tensor": len(tensors) - 1}
        if isinstance(value, torch.dtype | torch.device):
            return {"torch": str(value).removeprefix("torch.")}
        if isinstance(value, tuple):
            return {"each": [told(one) for one in value]}
        for name, kind in GIVEN.items():
            if isinstance(value, kind):
                return {"given": name}
        kind = type(value)
        if KINDS.get(kind.__name__) is not kind:
            raise Undescribed(f"no description of {kind.__name__} is kept")
        if id(value) in seen:
            return {"again": seen[id(value)]}
        seen[id(value)] = len(seen)
        return {"kind": kind.__name__, "has": {name: told(part) for name, part in _attributes(value).items()}}

    return told(decoder), tensors


def restore(description: Any, tensors: Sequence[Tensor], library: Library, shape: Shape) -> Decoder:
    """The decoder of a description. Raises KeyError, TypeError, IndexError or ValueError on one that describes none."""
    given = {"library": library, "shape": shape}
    seen: list[Any] = []

    def made(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        if "tensor" in value:
            return tensors[value["tensor"]]
        if "torch" in value:
            own = getattr(torch, value["torch"], None)
            return own if isinstance(own, torch.dtype) else torch.device(value["torch"])
        if "each" in value:
            return tuple(made(one) for one in value["each"])
        if "given" in value:
            return given[value["given"]]
        if "again" in value:
            return seen[value["again"]]
        number = len(seen)
        seen.append(None)
        seen[number] = _object(KINDS[value["kind"]], {name: made(part) for name, part in value["has"].items()})
        return seen[number]

    decoder = made(description)
    if not isinstance(decoder, Decoder):
        raise TypeError(f"a description of a {type(decoder).__name__} and not of a decoder")
    return decoder


def _attributes(value: Any) -> dict[str, Any]:
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return dict(vars(value))


def _object(kind: type[Any], attributes: dict[str, Any]) -> Any:
    """An object that has these attributes. Its __init__ made them once, from what is no longer there."""
    if is_dataclass(kind):
        return kind(**attributes)
    value = object.__new__(kind)
    vars(value).update(attributes)
    return value
