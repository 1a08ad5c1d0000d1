"""How coroutines ask a driver for a forward, and the rows that it returns."""

from __future__ import annotations

import types
from collections.abc import Callable, Generator, Hashable
from collections.abc import Sequence as Series
from dataclasses import dataclass, field
from typing import Any, Protocol, final

from torch import Tensor

from .choice import Chooser
from .values import Pack


@final
class Later:
    """A tensor that is made when somebody reads it: most rounds never do, and making one takes microseconds."""

    __slots__ = ("make",)

    def __init__(self, make: Callable[[], Tensor]) -> None:
        self.make = make


@dataclass(slots=True, eq=False)
class Rows:
    """The results of a forward for the wanted rows of one request, in order.

    logits [n, V]; hidden [n, D], the input of the output head; taps: layer -> [n_all, D], of all rows. seconds: from the
    request to these rows, in a pack its part by rows; the sequence fills it in. native: of the whole packed forward, the
    seconds inside native code. chooser: who reads these logits faster than torch's operations, if anyone. best: the best
    token of each row, where the forward has found them and each row is a law. tokens, shares: of a chain that went on by
    itself, the best token of each row, which the next row follows, and its share of the row's softmax; -1 after a last row
    that is no law. checked: the rows but the first one followed guesses, which this one forward checked. pack: what they
    were computed with, None if alone; the driver fills it in.
    """

    given_logits: Tensor | Later
    given_hidden: Tensor | Later
    taps: dict[int, Tensor] = field(default_factory=dict)
    seconds: float = 0.0
    native: float = 0.0
    chooser: Chooser | None = None
    tokens: Series[int] = ()
    shares: Series[float] = ()
    checked: bool = False
    pack: Pack | None = None
    best: Series[int] = ()

    @property
    def logits(self) -> Tensor:
        if isinstance(self.given_logits, Later):
            self.given_logits = self.given_logits.make()
        return self.given_logits

    @property
    def hidden(self) -> Tensor:
        if isinstance(self.given_hidden, Later):
            self.given_hidden = self.given_hidden.make()
        return self.given_hidden


class Executor(Protocol):
    """Computes forwards, several requests in one."""

    def execute(self, requests: Series[Any]) -> list[Rows]: ...


class Request(Protocol):
    """A requested forward, as the driver sees it.

    Requests with an equal packs_with can share a forward. drafting: it is part of a draft, and verifications wait for it,
    so that a batch stays in phase. reads: how many rows of a text that is there already it reads, if these are many, else 0.
    """

    @property
    def runner(self) -> Executor: ...

    @property
    def drafting(self) -> bool: ...

    @property
    def packs_with(self) -> Hashable: ...

    @property
    def tokens(self) -> Series[int]: ...

    @property
    def reads(self) -> int: ...


class Target(Protocol):
    """The sequence that the loop verifies on: a committed prefix, and scratch rows after it."""

    async def sync(self, ids: Series[int], taps: frozenset[int] = frozenset()) -> Rows:
        """Make the prefix equal to ids; the row after its last token."""
        ...

    async def complete(self, tokens: Series[int], parents: Series[int], taps: frozenset[int] = frozenset()) -> Rows:
        """Rows of the whole model after each of these tokens, which follow their parents."""
        ...

    def keep(self, rows: Series[int]) -> None:
        """Commit some of the scratch rows, drop the others."""
        ...


@types.coroutine
def submit(request: Request) -> Generator[Request, Rows, Rows]:
    """Suspend with a request; the driver resumes with its rows."""
    return (yield request)
