"""Drafts of a round: of drafters that copy text one after the other, of draft models with all requests' forwards shared.

What a draft model keeps is bounded: of the texts in flight it reads no more tokens than its memory holds. Requests beyond
that, the newest, are decoded without drafts to their ends.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import final

from ...core.drive import Batch
from .request import Request

LOG = "vllm.forerun"  # vLLM shows what its own loggers say


def together(asked: Sequence[tuple[Request, int]]) -> list[list[int]]:
    """Drafts of these requests, each up to a length. Raises the first error that one of them ends with."""
    batch: Batch[int, list[int]] = Batch()
    drafts: list[list[int]] = [[] for _ in asked]
    try:
        for place, (request, longest) in enumerate(asked):
            batch.add(place, request.drafting(longest))
        for place, draft in batch.values():
            drafts[place] = draft
    finally:
        batch.close()
    return drafts


def one_by_one(asked: Sequence[tuple[Request, int]]) -> list[list[int]]:
    return [request.draft(longest) for request, longest in asked]


@final
class DraftMemory:
    """most: tokens of all texts that a draft model may hold, None where none runs.

    reads: of a prompt it reads so many, 0: all.
    """

    def __init__(self, most: int | None, reads: int = 0) -> None:
        self._most, self._reads = most, reads
        self._told = False

    def fit(self, requests: Sequence[Request]) -> None:
        """Let go of requests that don't fit. requests: in the order in which they came."""
        if self._most is None:
            return
        held = 0
        for request in requests:
            if request.plain:
                continue
            held += self._held(request)
            if held > self._most:
                held -= self._held(request)
                request.let_go()
                self._tell()

    def _held(self, request: Request) -> int:
        length = len(request.context.ids)
        return min(length, self._reads + length - request.context.prompt_length) if self._reads else length

    def _tell(self) -> None:
        if not self._told:
            self._told = True
            logging.getLogger(LOG).warning(
                "the draft model holds keys and values of %d tokens at most; requests beyond that are decoded without "
                "drafts; give it more with draft_memory",
                self._most,
            )
