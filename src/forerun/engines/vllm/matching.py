"""Which row of vLLM's batch is which request: told by the texts, since rows move and carry no names.

A row continues a request if the request's last tokens stand at the same places in it. Where the batch changed, so that a
row may be another's, its whole text is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, final

from .request import Request

TAIL = 16  # tokens
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
        """The quick way, for a batch that is the last one with a round's tokens more; None for any other."""
        if self._absent or len(sampled) != len(self._shown):
            return None
        found: list[tuple[Request | None, int]] = []
        for row, (request, new) in enumerate(zip(self._shown, sampled, strict=True)):
            if request is None or not new or sizes[row] - len(new) != len(request.context.ids):
                return None
            if not _ends_alike(request.context.ids, texts[row]):
                return None
            found.append((request, len(new)))
        return found

    def _anywhere(
        self, sampled: Sequence[Sequence[int]], sizes: Sequence[int], texts: Any
    ) -> list[tuple[Request | None, int]]:
        known = [request for request in self._shown if request is not None] + self._absent
        free = {id(request): request for request in known}
        found: list[tuple[Request | None, int]] = []
        for row, new in enumerate(sampled):
            if not new:
                found.append((None, 0))
                continue
            here = self._shown[row] if row < len(self._shown) else None
            first = [] if here is None or id(here) not in free else [here]
            request = _continued([*first, *free.values()], texts[row], sizes[row], len(new))
            if request is None:
                request = self._create(texts[row, : sizes[row]].tolist(), len(new))
                found.append((request, 0))
            else:
                del free[id(request)]
                request.absent = 0
                found.append((request, sizes[row] - len(request.context.ids)))
        self._leave(free.values())
        return found

    def _leave(self, gone: Iterable[Request]) -> None:
        self._absent = []
        for request in gone:
            request.absent += 1
            if request.ended or request.absent > PATIENCE:
                request.end()
            else:
                self._absent.append(request)


def _continued(candidates: Iterable[Request], text: Any, size: int, new: int) -> Request | None:
    """The first whose whole text the row begins with and goes on from, by its new tokens or few more."""
    for request in candidates:
        ids = request.context.ids
        missed = size - new - len(ids)
        if 0 <= missed <= MISSED and _ends_alike(ids, text) and text[: len(ids)].tolist() == ids:
            return request
    return None


def _ends_alike(ids: list[int], text: Any) -> bool:
    end = len(ids)
    return bool(text[max(end - TAIL, 0) : end].tolist() == ids[-TAIL:])
