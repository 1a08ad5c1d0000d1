"""Token ids and their masks as plain lists, from lists, tensors and arrays."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Number
from typing import Any

import numpy as np
from torch import Tensor


def is_id(value: Any) -> bool:
    """Whether a value is meant as one token id, be it a good one or not."""
    if isinstance(value, str | bytes):  # numpy's own are arrays without dimensions, too
        return False
    return isinstance(value, Number) or (isinstance(value, Tensor | np.ndarray | np.generic) and not value.ndim)


def ids_of(row: Any) -> list[int]:
    """Raises ValueError on what is no whole number; a bool is none, and a float is none even without a fraction."""
    values = listed(row)
    if not isinstance(values, Sequence):
        raise ValueError(f"a row of token ids is a list of whole numbers, got {ascii(values)[:60]}")
    ids: list[int] = []
    for place, value in enumerate(values):
        token = value.item() if isinstance(value, Tensor | np.ndarray | np.generic) and not value.ndim else value
        if isinstance(token, bool) or not isinstance(token, int):
            raise ValueError(f"token ids are whole numbers, got {ascii(token)[:60]} at place {place}")
        ids.append(token)
    return ids


def mask_of(row: Any) -> Sequence[Any]:
    """The places of a mask, or its rows. Raises ValueError on what is neither."""
    mask = listed(row)
    if not isinstance(mask, list | tuple):
        raise ValueError(f"an attention mask has the shape of its ids, got {ascii(mask)[:60]} in the place of a row")
    return mask


def all_zero(values: Any) -> bool:
    """Whether every number in there is 0, at any depth."""
    inside = listed(values)
    return all(map(all_zero, inside)) if isinstance(inside, list | tuple) else bool(inside == 0)


def listed(values: Any) -> Any:
    """A tensor or an array as nested lists, anything else as it is."""
    return values.tolist() if isinstance(values, Tensor | np.ndarray) else values
