"""How drafters are built.

A drafter is one file: a class with `draft`, and a registered build function whose keyword-only arguments are its options.
build makes a factory once (it may load a model); the factory makes one drafter for each request, so that interleaved
requests share no state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from ..core.drafter import Drafter
from ..core.identity import Identity
from ..models.packed.plan import FULL, LayerPlan
from ..models.packed.pool import SequencePool
from ..models.packed.runner import Runner
from ..models.packed.sequence import Sequence
from .registry import DRAFTERS

__all__ = ["DRAFTERS", "Drafter", "DrafterFactory", "OpenPool", "Parts", "drafting_pool"]

DrafterFactory = Callable[[Sequence], Drafter]


def drafting_pool(runner: Runner, identity: Identity | None = None, plan: LayerPlan = FULL) -> SequencePool:
    return SequencePool(runner, drafting=True, identity=identity, plan=plan)


class OpenPool(Protocol):
    """drafting_pool, or a function that also keeps a list of its pools."""

    def __call__(self, runner: Runner, identity: Identity | None = None, plan: LayerPlan = FULL) -> SequencePool: ...


@dataclass(frozen=True, slots=True)
class Parts:
    """What a drafter is built from: the target's sequences, its vocabulary, and a way to load another model.

    identity says which model the target is. vocabulary: token string -> id of the target's tokenizer; encode: text -> ids;
    None where there is no tokenizer. load opens a model by name or path in the target's dtype and device, and gives its
    sequences and its vocabulary; open_pool gives sequences of a runner, under a plan of weights and head.
    """

    target: SequencePool
    identity: Identity
    vocabulary: dict[str, int] | None
    load: Callable[[Any], tuple[SequencePool, dict[str, int] | None]]
    encode: Callable[[str], list[int]] | None = None
    open_pool: OpenPool = drafting_pool
