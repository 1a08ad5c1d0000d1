"""The interface of a drafter: it drafts for one request, and may let other drafters branch its drafts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from collections.abc import Sequence as Series

from ..errors import UnsupportedOption
from .forward import Rows
from .values import NO_WORK, Context, Round, Step, UnusedWork
from .verify import Rule

WITH_LAW = "draft with draft_model, self or exit_adapter"


class Drafter(ABC):
    """Drafts for one request. taps: the layers whose states it reads from the target's sequence (Sequence.states).

    identity: which drafter it is, for files that were trained for it; "" if unknown. branches: whether it has begin and
    extend, which drafting a tree needs. rule: how its drafts are verified, if not by verify.verify; any other rule is lossy.
    inner: the drafter that it branches, if any. forwards: the rows of each forward of inner in the last draft. unused: work
    of the last draft that led to no step. drafted_by: the name of the one that made the last draft, of several inside.
    copies: whether it may find a first step without a forward, so that asking it costs next to nothing. checks_guesses:
    whether go_on makes use of guesses.
    """

    taps: frozenset[int] = frozenset()
    identity: str = ""
    branches: bool = False
    rule: Rule | None = None
    inner: Drafter | None = None
    forwards: Series[int] = ()
    unused: UnusedWork = NO_WORK
    drafted_by: str = ""
    copies: bool = False
    checks_guesses: bool = False

    @abstractmethod
    def draft(self, context: Context) -> AsyncGenerator[Step]:
        """Yield steps that continue context.ids until there is nothing to add; the caller stops pulling when it likes.

        Parents are node numbers of this round's draft, ROOT for the pending token. A `finally` must not await. Rows that
        are no law, of a model that overflows or under processors, end the draft; they are no error.
        """

    def begins(self, context: Context) -> bool:
        """Whether draft finds a first step, as far as that is known without a forward; if not, it isn't called.

        The loop asks once a round, before draft; other callers needn't.
        """
        return True

    def unread(self, ids: Series[int]) -> int:
        """How many tokens of this text its first forward has to read, 0 for a drafter that reads none of its own."""
        return 0

    async def begin(self, context: Context) -> Rows | None:
        """The row after the pending token, at the start of a round; None where nothing can be drafted."""
        raise UnsupportedOption(f"a {type(self).__name__} gives no probabilities to branch from; {WITH_LAW}")

    async def extend(self, tokens: Series[int], parents: Series[int]) -> Rows | None:
        """A row after each of these drafted tokens; None where the drafter's context ends.

        The tokens handed over since begin are numbered from 0. parents[i] is the number of an earlier one that tokens[i]
        follows, ROOT for the pending token.
        """
        raise UnsupportedOption(f"a {type(self).__name__} gives no probabilities to branch from; {WITH_LAW}")

    async def go_on(self, context: Context, drafted: Series[int], ahead: int, guesses: Series[int] = ()) -> Rows | None:
        """The row after a chain of tokens drafted in this round; None where begin and extend give none.

        Of up to `ahead` rows, if it computes several at once: then Rows.tokens, by which it went on greedily, are known.
        ahead is 0 where the next token may not be the best one of the row. guesses: what may follow; a drafter that checks
        guesses gives the rows up to the first that is not the best token, all of one forward.
        """
        return await (self.extend(drafted[-1:], [len(drafted) - 2]) if drafted else self.begin(context))

    def guess(self, context: Context, drafted: Series[int], most: int) -> Series[int]:
        """At most so many tokens that it expects after context.ids and these, found without a forward."""
        return ()

    async def read(self, ids: Series[int], given: int) -> Rows:
        """The rows after ids[given - 1:], as if the tokens after the first `given` had been drafted, in one pass.

        To learn from a text without drafting it token by token. given is at least 3. Raises UnsupportedOption where the
        drafter has no rows.
        """
        raise UnsupportedOption(f"a {type(self).__name__} can't read a text in one pass; {WITH_LAW}")

    def learn(self, context: Context, round: Round, rows: Rows) -> None:  # noqa: B027
        """Learn from a finished round, whose tokens the context has: row i + 1 of the target's follows draft node i.

        Row 0 follows the token that was pending, context.ids[round.start - 1]; the prefill has this row alone. The logits
        [1 + N, V] are raw. The rows are the caller's: read them now, don't keep or change them.
        """

    def close(self) -> None:  # noqa: B027
        """The request ended: release what other requests can use. Called once; most drafters hold nothing."""
