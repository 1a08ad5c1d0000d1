"""What a drafter is, and the table of all drafters.

A drafter is one file: a class with `draft`, and a registered build function whose keyword-only arguments are its options.
build makes a factory once (it may load a model); the factory makes one drafter for each request, so that interleaved
requests never mix state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Any

from ..core import Context, Step
from ..models.identity import Identity
from ..models.pool import Pool
from ..models.runner import Runner
from ..models.sequence import Sequence
from ..registry import Registry


class Drafter(ABC):
    """Drafts for one request. taps: the layers whose states it reads off the target's sequence (Sequence.states)."""

    taps: frozenset[int] = frozenset()

    @abstractmethod
    def draft(self, context: Context) -> AsyncGenerator[Step]:
        """Yield steps that continue context.ids until there is nothing to add; the caller stops pulling when it likes.

        Parents are node numbers of this round's draft, ROOT for the pending token. A `finally` must not await.
        """

    def close(self) -> None:  # noqa: B027
        """The request ended: give back what other requests can use. Called once; most drafters hold nothing."""


DrafterFactory = Callable[[Sequence], Drafter]


def drafting_pool(runner: Runner) -> Pool:
    return Pool(runner, drafting=True)


@dataclass(frozen=True, slots=True)
class Parts:
    """What a drafter is built from: the target's sequences, its vocabulary, and a way to load another model.

    identity says which model the target is. vocabulary: token string -> id of the target's tokenizer; encode: text -> ids;
    None where there is no tokenizer. load opens a model by name or path in the target's dtype and device, and gives its
    sequences and its vocabulary; open_pool gives sequences of a runner that the drafter made itself.
    """

    target: Pool
    identity: Identity
    vocabulary: dict[str, int] | None
    load: Callable[[Any], tuple[Pool, dict[str, int] | None]]
    encode: Callable[[str], list[int]] | None = None
    open_pool: Callable[[Runner], Pool] = drafting_pool


DRAFTERS: Registry[Callable[..., DrafterFactory]] = Registry("drafter")
