"""A branched draft in a trace: its levels, the work for each, and the nodes that agree with the answer.

A branched draft depends on the text alone: a policy that stops it earlier gets the same levels up to that point. So one
draft at each position is enough to replay every depth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..core.values import ROOT, Signals
from .signals import numbers_of, signals_from


@dataclass(frozen=True, slots=True)
class Level:
    """A step of a branched draft; parents are numbers of the whole draft's nodes.

    forwards: the rows of each of the drafter's forwards for it, none if all were known. merged and saved as
    core.DraftCounts has them.
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    signals: Signals | None
    forwards: tuple[int, ...]
    merged: int = 0
    saved: int = 0


@dataclass(frozen=True, slots=True)
class Branches:
    """A branched draft. path: the nodes that agree with the answer, one per level from the first on.

    left: the rows of the forwards after the last level, which led to no node.
    """

    levels: tuple[Level, ...]
    path: tuple[int, ...]
    left: tuple[int, ...] = ()


def branches_of(levels: Sequence[Level], left: Sequence[int], follow: Sequence[int]) -> Branches:
    """A draft at a position where the answer continues with `follow`."""
    parents = [parent for level in levels for parent in level.parents]
    children = {
        (parent, token): node
        for node, (parent, token) in enumerate(
            zip(parents, (token for level in levels for token in level.tokens), strict=True)
        )
    }
    path: list[int] = []
    for token in follow:
        node = children.get((path[-1] if path else ROOT, token))
        if node is None:
            break
        path.append(node)
    return Branches(tuple(levels), tuple(path), tuple(left))


def as_dict(branches: Branches) -> dict[str, Any]:
    """A branched draft as in the file."""
    return {
        "levels": [
            {
                "tokens": list(level.tokens),
                "parents": list(level.parents),
                "signals": numbers_of(level.signals),
                "forwards": list(level.forwards),
                "merged": level.merged,
                "saved": level.saved,
            }
            for level in branches.levels
        ],
        "left": list(branches.left),
    }


def from_dict(data: Mapping[str, Any], follow: Sequence[int]) -> Branches:
    """The inverse of as_dict; the answer continues with `follow`."""
    levels = [
        Level(
            tuple(one["tokens"]),
            tuple(one["parents"]),
            signals_from(one["signals"]),
            tuple(one["forwards"]),
            int(one["merged"]),
            int(one["saved"]),
        )
        for one in data["levels"]
    ]
    return branches_of(levels, data["left"], follow)
