"""What a trace holds of a branched draft: its levels, what drafting each took, and which nodes the answer went on with.

A branched draft follows from the text alone: a policy that stops it earlier gets the same levels up to there. So one draft
from everywhere lets every depth be replayed.
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

    forwards: how many rows each of the drafter's forwards had that it took, none where all was known. merged and saved as
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
    """A branched draft. path: the nodes that the answer went on with, one a level from the first level on.

    left: the rows of the forwards after the last level, which came to no node.
    """

    levels: tuple[Level, ...]
    path: tuple[int, ...]
    left: tuple[int, ...] = ()


def branches_of(levels: Sequence[Level], left: Sequence[int], follow: Sequence[int]) -> Branches:
    """A draft at a place where the answer goes on with `follow`."""
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
    """A branched draft as it stands in the file."""
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
    """The draft that as_dict gave; the answer goes on with `follow`."""
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
