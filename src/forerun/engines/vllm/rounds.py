"""From call to call: what became of the last drafts, how long the round took, and the next drafts.

The time between two calls is vLLM's round, unless it read a prompt in it, or waited for requests: where no request went on
from the last call. Such a round teaches nobody what drafts cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any, final

from ...core.values import Timing
from .costs import BatchRound, drafters_of
from .drafting import DraftMemory, one_by_one, together
from .matching import Requests
from .method import Method
from .request import Request
from .settings import Settings

UNTIMED = Timing()


@final
class Rounds:
    def __init__(self, method: Method, settings: Settings) -> None:
        self._method, self._settings = method, settings
        self._requests = Requests(self._create)
        self._memory = DraftMemory(method.most_held, method.reads)
        self._together = method.most_held is not None
        self._count = 0  # of requests so far
        self._begun = self._ended = 0.0  # of the last call
        self._held_back = False

    @property
    def in_flight(self) -> int:
        """Requests whose state is kept."""
        return len(self._requests)

    def next(self, sampled: Sequence[Sequence[int]], lengths: Any, texts: Any) -> list[list[int]]:
        """A draft for each row, of any length from none on."""
        now = perf_counter()
        rows = self._requests.match(sampled, lengths, texts)
        self._learn(sampled, rows, texts, now)
        self._begun = now
        drafts = self._draft([request for request, _ in rows])
        self._ended = perf_counter()
        return drafts

    def _learn(
        self, sampled: Sequence[Sequence[int]], rows: Sequence[tuple[Request | None, int]], texts: Any, now: float
    ) -> None:
        timing = UNTIMED
        if rows and all(request and lacks == len(new) for (request, lacks), new in zip(rows, sampled, strict=True)):
            timing = self._timed([request for request, _ in rows if request], sampled, now)
        for row, ((request, lacks), new) in enumerate(zip(rows, sampled, strict=True)):
            if request is None or not lacks:
                continue
            if lacks == len(new):
                request.extend(new, timing)
            else:
                end = len(request.context.ids)
                request.skip(texts[row, end : end + lacks].tolist())

    def _timed(self, requests: Sequence[Request], sampled: Sequence[Sequence[int]], now: float) -> Timing:
        """Of a round in which every request was decoded; costs and governor learn from it."""
        round = BatchRound(
            requests=len(requests),
            drafted=sum(request.drafted for request in requests),
            emitted=sum(map(len, sampled)),
            draft_seconds=self._ended - self._begun,
            seconds=now - self._ended,
            held_back=self._held_back,
            drafters=drafters_of([request.steps for request in requests]),
        )
        costs, governor = self._method.costs, self._method.governor
        costs.learn_round(round)
        if governor is not None:
            governor.learn(round, costs.plain_seconds(round.requests))
        return Timing(draft=round.draft_seconds, forward=round.seconds)

    def _draft(self, rows: Sequence[Request | None]) -> list[list[int]]:
        requests = [request for request in rows if request is not None]
        governor = self._method.governor
        self._held_back = bool(requests) and governor is not None and governor.holds_back(len(requests))
        self._method.costs.requests = max(len(requests), 1)
        self._memory.fit(sorted(requests, key=lambda request: request.number))
        drafts: list[list[int]] = [[] for _ in rows]
        places: list[int] = []
        asked: list[tuple[Request, int]] = []
        for place, request in enumerate(rows):
            if request is None:
                continue
            room = self._settings.max_length - len(request.context.ids) - 1
            if self._held_back or room <= 0 or request.plain:
                request.hold_back()
            else:
                places.append(place)
                asked.append((request, min(self._settings.longest, room)))
        found = together(asked) if self._together and asked else one_by_one(asked)
        for place, draft in zip(places, found, strict=True):
            drafts[place] = draft
        return drafts

    def _create(self, ids: list[int], new: int) -> Request:
        drafter, policy = self._method.make()
        request = Request(drafter, policy, ids, new, self._settings.max_length, self._settings.eos)
        self._count += 1
        request.number = self._count
        return request
