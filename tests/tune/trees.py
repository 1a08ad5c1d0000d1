"""Engines that draft trees and graphs on tiny models, and a tree's trace made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import forerun
from forerun.core.cost import Costs
from forerun.core.values import Signals
from forerun.traces.branches import Level, branches_of
from forerun.traces.read import Trace, TracedAnswer, TraceHeader, position_of

from .traced import PAIR, draft_of, model

SURE = Signals(0.9, 0.9, 0.1, (0.9,))
WIDE = {"n": 3, "min_confidence": 0.004, "budget": 30}  # confidences of a model that never learnt are small
AS_A_CHAIN = {"n": 1, "min_confidence": 0.0, "budget": 12}


def branching(name: str = "tree", of: str = "draft_model", target: Any = None, **options: Any) -> forerun.Engine:
    """The target with a drafter that branches a noisy copy of it, or its own exit 3."""
    target = model() if target is None else target
    inner = {"model": draft_of(target, 0.02)} if of == "draft_model" else {"exit_layer": 3}
    more = {"sibling": 0.0, "leaf": 0.0} if name == "graph" else {}
    return forerun.load(target, drafter=name, drafter_options={"of": of, **inner, **more, **options})


def chain_of(of: str, target: Any) -> forerun.Engine:
    """What branching(of=of) branches."""
    inner = {"model": draft_of(target, 0.02)} if of == "draft_model" else {"exit_layer": 3}
    return forerun.load(target, drafter=of, drafter_options=inner)


def tree_by_hand(
    *answers: Sequence[tuple[int, int]], width: int = 2, depth: int = 2, left: int = 0, costs: Costs | None = None
) -> Trace:
    """Answers of zeros. At each position: how many tokens of the chain agree, and how many levels of the tree do.

    Both are `depth` deep, or what room is left. A level holds `width` nodes after the last agreeing one, of which the last
    is right; its forward has a row for each node before. left: rows of a forward after it that came to nothing.
    """
    made = []
    for number, places in enumerate(answers):
        tokens = (0,) * (len(places) + 1)
        positions = []
        for known, (chain, tree) in enumerate(places, start=1):
            room = min(depth, len(tokens) - known - 1)
            drafted = (0,) * min(chain, room) + (1,) * (room - min(chain, room))
            levels = [_level(level, tree, width) for level in range(room)]
            branches = branches_of(levels, (left,) if left else (), tokens[known:])
            positions.append(position_of(drafted, (SURE,) * room, tokens[known:], None, branches))
        made.append(TracedAnswer(f"answer-{number}", "all", (3,) * 5, tokens, len(tokens), tuple(positions)))
    header = TraceHeader("tiny", PAIR, "tree", {}, depth, 1, 64, False, len(made), costs, {})
    return Trace(Path("hand.jsonl"), header, tuple(made))


def _level(level: int, right: int, width: int) -> Level:
    tokens = tuple(range(2, width + 1)) + (0 if level < right else 1,)
    parent = level * width - 1
    return Level(tokens, (parent,) * width, SURE, (1 if level == 0 else width,))
