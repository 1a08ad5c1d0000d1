"""What a drafter is, and the table of all drafters.

A drafter is one file: a class with `draft`, and a registered build function whose keyword-only arguments are its options.
build makes a factory once (it may load a model); the factory makes one drafter for each request, so that interleaved
requests never mix state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable
from collections.abc import Sequence as Series
from dataclasses import dataclass
from typing import Any, Protocol

from ..core.identity import Identity
from ..core.registry import Registry
from ..core.values import Context, Step, Unused
from ..core.verify import Rule
from ..errors import UnsupportedOption
from ..models.packed.plan import FULL, LayerPlan
from ..models.packed.pool import Pool
from ..models.packed.request import Rows
from ..models.packed.runner import Runner
from ..models.packed.sequence import Sequence

WITH_LAW = "draft with draft_model, self or exit_adapter"


class Drafter(ABC):
    """Drafts for one request. taps: the layers whose states it reads off the target's sequence (Sequence.states).

    identity says which drafter it is, to what was trained for it; "" where it can't be told. branches: it has begin and
    extend, so a tree can be drafted with it. rule: how its drafts are verified where that is not verify.verify; any other is
    lossy. inner: the drafter that it branches, if it does; forwards: how many rows each forward of inner had, of the last
    draft begun. unused: what was done in the last draft begun, beside its steps' own effort.
    """

    taps: frozenset[int] = frozenset()
    identity: str = ""
    branches: bool = False
    rule: Rule | None = None
    inner: Drafter | None = None
    forwards: Series[int] = ()
    unused: Unused = Unused()

    @abstractmethod
    def draft(self, context: Context) -> AsyncGenerator[Step]:
        """Yield steps that continue context.ids until there is nothing to add; the caller stops pulling when it likes.

        Parents are node numbers of this round's draft, ROOT for the pending token. A `finally` must not await. Rows that
        are no law, of a model that overflows or under processors, end the draft; they are no error.
        """

    def unread(self, ids: Series[int]) -> int:
        """How many tokens of this text its first forward has to read, 0 for a drafter that reads none of its own."""
        return 0

    async def begin(self, context: Context) -> Rows | None:
        """The row behind the pending token, at the start of a round; None where nothing can be drafted."""
        raise UnsupportedOption(f"a {type(self).__name__} has no law to branch from; {WITH_LAW}")

    async def extend(self, tokens: Series[int], parents: Series[int]) -> Rows | None:
        """A row behind each of these drafted tokens; None where the drafter's context ends.

        The tokens handed over since begin are numbered from 0. parents[i] is the number of an earlier one that tokens[i]
        follows, ROOT for the pending token.
        """
        raise UnsupportedOption(f"a {type(self).__name__} has no law to branch from; {WITH_LAW}")

    async def read(self, ids: Series[int], given: int) -> Rows:
        """The rows behind ids[given - 1:], as if the tokens behind the first `given` had been drafted, in one pass.

        To learn from a text without drafting it token by token. given is at least 3. Raises UnsupportedOption where the
        drafter has no rows.
        """
        raise UnsupportedOption(f"a {type(self).__name__} can't read a text in one pass; {WITH_LAW}")

    def close(self) -> None:  # noqa: B027
        """The request ended: give back what other requests can use. Called once; most drafters hold nothing."""


DrafterFactory = Callable[[Sequence], Drafter]


def drafting_pool(runner: Runner, identity: Identity | None = None, plan: LayerPlan = FULL) -> Pool:
    return Pool(runner, drafting=True, identity=identity, plan=plan)


class OpenPool(Protocol):
    """drafting_pool, or one that remembers what it opened."""

    def __call__(self, runner: Runner, identity: Identity | None = None, plan: LayerPlan = FULL) -> Pool: ...


@dataclass(frozen=True, slots=True)
class Parts:
    """What a drafter is built from: the target's sequences, its vocabulary, and a way to load another model.

    identity says which model the target is. vocabulary: token string -> id of the target's tokenizer; encode: text -> ids;
    None where there is no tokenizer. load opens a model by name or path in the target's dtype and device, and gives its
    sequences and its vocabulary; open_pool gives sequences of a runner, under a plan of weights and head.
    """

    target: Pool
    identity: Identity
    vocabulary: dict[str, int] | None
    load: Callable[[Any], tuple[Pool, dict[str, int] | None]]
    encode: Callable[[str], list[int]] | None = None
    open_pool: OpenPool = drafting_pool


DRAFTERS: Registry[Callable[..., DrafterFactory]] = Registry("drafter")
