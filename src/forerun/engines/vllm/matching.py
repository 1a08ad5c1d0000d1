"""Which row of vLLM's batch is which request: told by the texts, since rows move and carry no names.

A row continues a request if the request's last tokens stand at the same places in it. Where a request left, so that rows may
have moved, more of the texts is compared. Should two be taken for each other, drafts get worse and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import chain
from typing import Any, final

from .request import Request

TAIL, LONG_TAIL, SAMPLES = 16, 256, 64  # tokens that are compared
MISSED = 64  # tokens of rounds after which vLLM didn't ask for drafts
PATIENCE = 4  # calls after which a request that isn't shown counts as ended; a preempted one begins anew


@final
class Requests:
    """The requests in flight. create makes one from its text and the number of its last tokens that are new."""

    def __init__(self, create: Callable[[list[int], int], Request]) -> None:
        self._create = create
        self._shown: list[Request | None] = []
        self._absent: list[Request] = []

    def __len__(self) -> int:
        return len(self._absent) + sum(request is not None for request in self._shown)

    def match(self, sampled: Sequence[Sequence[int]], lengths: Any, texts: Any) -> list[tuple[Request | None, int]]:
        """Of each row its request, None while its prompt is read, and the number of tokens that the request lacks.

        A new request lacks none. Requests that are gone are ended.
        """
        sizes = [int(size) for size in lengths[: len(sampled)]]
        found = self._where_they_were(sampled, sizes, texts)
        if found is None:
            found = self._anywhere(sampled, sizes, texts)
        self._shown = [request for request, _ in found]
        return found

    def _where_they_were(
        self, sampled: Sequence[Sequence[int]], sizes: Sequence[int], texts: Any
    ) -> list[tuple[Request | None, int]] | None:
        """The quick way, where nobody left and no row can have moved; None where somebody may have."""
        if self._absent or len(sampled) < len(self._shown):
            return None
        for row, request in enumerate(self._shown):
            if request is not None:
                new = len(sampled[row])
                if not new or sizes[row] - new != len(request.context.ids) or not _ends_alike(request, texts[row]):
                    return None
        here = [*self._shown, *[None] * (len(sampled) - len(self._shown))]
        return [
            (self._new(texts[row], sizes[row], len(new)), 0) if request is None else (request, len(new))
            for row, (request, new) in enumerate(zip(here, sampled, strict=True))
        ]

    def _anywhere(
        self, sampled: Sequence[Sequence[int]], sizes: Sequence[int], texts: Any
    ) -> list[tuple[Request | None, int]]:
        free = {id(request): request for request in (*self._shown, *self._absent) if request is not None}
        found: list[tuple[Request | None, int]] = []
        for row, new in enumerate(sampled):
            here = self._shown[row] if row < len(self._shown) else None
            first = here if here is not None and id(here) in free else None
            request = _continued(first, free.values(), texts[row], sizes[row], len(new)) if new else None
            if request is None:
                found.append((self._new(texts[row], sizes[row], len(new)), 0))
            else:
                del free[id(request)]
                request.absent = 0
                found.append((request, sizes[row] - len(request.context.ids)))
        self._leave(free.values())
        return found

    def _new(self, text: Any, size: int, new: int) -> Request | None:
        return self._create(text[:size].tolist(), new) if new else None

    def _leave(self, gone: Iterable[Request]) -> None:
        self._absent = []
        for request in gone:
            request.absent += 1
            if request.ended or request.absent > PATIENCE:
                request.end()
            else:
                self._absent.append(request)


def _continued(first: Request | None, others: Collection[Request], text: Any, size: int, new: int) -> Request | None:
    """The first whose text the row begins with and goes on from: by its new tokens alone, or else by few more."""
    for most in (0, MISSED):
        for request in others if first is None else chain([first], others):
            if 0 <= size - new - len(request.context.ids) <= most and _is_alike(request, text):
                return request
    return None


def _ends_alike(request: Request, text: Any, tail: int = TAIL) -> bool:
    ids = request.context.ids
    end = len(ids)
    return bool(text[max(end - tail, 0) : end].tolist() == ids[-tail:])


def _is_alike(request: Request, text: Any) -> bool:
    """Whether a row holds the request's text: its last tokens, and some of all, which takes the same time in any length."""
    ids = request.context.ids
    step = len(ids) // SAMPLES + 1
    return _ends_alike(request, text, LONG_TAIL) and bool(text[: len(ids) : step].tolist() == ids[::step])
