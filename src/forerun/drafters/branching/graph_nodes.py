"""The graph of a draft: tokens, each computed once, that several continuations may share.

If the last m + 1 tokens of a continuation are those of an earlier node, the continuation links to that node and shares all
that comes after it. A node never links to one from which it can be reached itself, so there are no cycles.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from ...core.values import ROOT


@final
class Graph:
    """Nodes are numbered from 0 in the order of their creation; ROOT is the pending token, the last of text.

    m: how many tokens before it a recurring token must share; -1 never merges.
    """

    def __init__(self, text: Sequence[int], m: int) -> None:
        self._m = m
        self._text = tuple(text[-m:]) if m > 0 else ()
        self._paths: dict[int, tuple[int, ...]] = {ROOT: ()}
        self._parents: list[int] = []
        self._children: dict[int, dict[int, int]] = {}
        self._before: dict[int, set[int]] = {}
        self._ends: dict[tuple[int, ...], list[int]] = {}

    def __len__(self) -> int:
        return len(self._parents)

    def path(self, node: int) -> tuple[int, ...]:
        """The tokens that led to a node when it was created, ending with its own."""
        return self._paths[node]

    def parent(self, node: int) -> int:
        """The node that it follows."""
        return self._parents[node]

    def children(self, node: int) -> dict[int, int]:
        """Token -> the one node that continues a node with it."""
        return dict(self._children.get(node, {}))

    def follow(self, node: int, token: int) -> tuple[int, bool]:
        """The node that continues a node with this token, and whether it is new."""
        children = self._children.setdefault(node, {})
        if token in children:
            return children[token], False
        path = (*self._paths[node], token)
        end = (*self._text, *path)[-self._m - 1 :]
        found = self._reusable(node, end)
        new = found is None
        if found is None:
            found = len(self._parents)
            self._parents.append(node)
            self._paths[found] = path
            self._ends.setdefault(end, []).append(found)
        children[token] = found
        self._before.setdefault(found, set()).add(node)
        return found, new

    def _reusable(self, node: int, end: tuple[int, ...]) -> int | None:
        """The first node with these last tokens that doesn't lead to `node`."""
        candidates = self._ends.get(end, []) if self._m >= 0 else []
        above = self._above(node) if candidates else set()
        return next((candidate for candidate in candidates if candidate not in above), None)

    def _above(self, node: int) -> set[int]:
        """All nodes from which a node can be reached, itself included."""
        seen, waiting = {node}, [node]
        while waiting:
            further = self._before.get(waiting.pop(), set()) - seen
            seen |= further
            waiting += further
        return seen
