from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from forerun.core.values import Timing
from forerun.engines.vllm.matching import MISSED, PATIENCE, TAIL, Requests
from forerun.engines.vllm.request import Request

from .recording import Recorded

EOS = 99
A, B, C = [10, 11, 12], [20, 21, 22], [30, 31, 32]


class Batch:
    """Calls with texts and the number of their new tokens; 0 while a prompt is read."""

    def __init__(self) -> None:
        self.recorded = Recorded()
        self.requests = Requests(self._create)
        self.made: list[Request] = []

    def _create(self, ids: list[int], new: int) -> Request:
        self.made.append(Request(*self.recorded.method.make(), ids, new, 500, frozenset({EOS})))
        return self.made[-1]

    def call(self, *rows: tuple[Sequence[int], int]) -> list[tuple[int | None, int]]:
        """Of each row the number of its request, and what that lacks."""
        texts = np.zeros((8, 500), dtype=np.int32)
        lengths = np.zeros(8, dtype=np.int32)
        sampled = [list(text[len(text) - new :]) for text, new in rows]
        for row, (text, _) in enumerate(rows):
            texts[row, : len(text)] = text
            lengths[row] = len(text)
        found = self.requests.match(sampled, lengths, texts)
        for (request, lacks), (text, _) in zip(found, rows, strict=True):
            if request is not None and lacks:
                request.extend(text[len(text) - lacks :], Timing())
                assert request.context.ids == [*text]
        return [(None if request is None else self.made.index(request), lacks) for request, lacks in found]

    @property
    def ended(self) -> list[int]:
        return [drafter.closed for drafter in self.recorded.drafters]


def test_rows_that_stay_are_found_where_they_were() -> None:
    batch = Batch()

    assert batch.call((A, 1), (B, 1)) == [(0, 0), (1, 0)]
    assert batch.call(([*A, 13], 1), ([*B, 23, 24], 2)) == [(0, 1), (1, 2)]
    assert batch.requests._absent == []


def test_a_row_that_moves_into_another_ones_place_is_found() -> None:
    batch = Batch()
    batch.call((A, 1), (B, 1), (C, 1))

    assert batch.call(([*C, 33], 1), ([*B, 23], 1)) == [(2, 1), (1, 1)]
    assert batch.call(([*B, 23, 24], 1), ([*C, 33, 34], 1)) == [(1, 1), (2, 1)]


def test_texts_that_end_alike_are_told_apart_where_the_batch_changed() -> None:
    """The last request moves into the first one's row, has as many tokens, and the same last ones."""
    same = list(range(40, 40 + TAIL))
    batch = Batch()
    batch.call(([1, 5, *same], 1), (B, 1), ([2, 5, *same], 1))

    assert batch.call(([2, 5, *same, 60], 1), ([*B, 23], 1)) == [(2, 1), (1, 1)]


def test_equal_texts_are_one_request_each() -> None:
    batch = Batch()

    assert batch.call((A, 1), (A, 1)) == [(0, 0), (1, 0)]
    assert batch.call(([*A, 13], 1), ([*A, 14], 1)) == [(0, 1), (1, 1)]
    assert batch.call(([*A, 14, 15], 1), ([*A, 13, 15], 1)) == [(1, 1), (0, 1)]


def test_prompts_that_are_read_have_no_request_yet() -> None:
    batch = Batch()

    assert batch.call((A, 1), (B, 0)) == [(0, 0), (None, 0)]
    assert batch.call(([*A, 13], 1), (B, 0)) == [(0, 1), (None, 0)]
    assert batch.call(([*A, 13, 14], 1), ([*B, 23], 1)) == [(0, 1), (1, 0)]
    assert len(batch.requests) == 2


def test_tokens_of_calls_that_were_missed_are_lacking() -> None:
    batch = Batch()
    batch.call((A, 1))

    assert batch.call(([*A, 13, 14, 15], 1)) == [(0, 3)]
    assert batch.call(([*A, *range(13, 18 + MISSED)], 1)) == [(1, 0)]


def test_a_request_that_is_away_for_a_call_is_found_again_and_one_that_stays_away_is_ended_once() -> None:
    batch = Batch()
    batch.call((A, 1), (B, 1))
    batch.call(([*A, 13], 1))
    assert batch.ended == [0, 0]
    assert batch.call(([*A, 13, 14], 1), ([*B, 23], 1)) == [(0, 1), (1, 1)]
    for step in range(PATIENCE + 3):
        batch.call(([*A, 13, 14, *range(50, 51 + step)], 1))
    assert batch.ended == [0, 1]
    assert len(batch.requests) == 1


def test_a_request_that_wrote_an_end_of_sequence_is_ended_at_once() -> None:
    batch = Batch()
    batch.call((A, 1), (B, 1))
    batch.call(([*A, EOS], 1), ([*B, 23], 1))
    batch.call(([*B, 23, 24], 1))

    assert batch.ended == [1, 0]


def test_a_preempted_request_that_was_read_anew_begins_anew() -> None:
    batch = Batch()
    batch.call((A, 1), (B, 1))
    for step in range(PATIENCE + 1):
        batch.call(([*A, *range(50, 51 + step)], 1))

    assert batch.call(([*A, *range(50, 52 + PATIENCE)], 1), ([*B, 23], 1)) == [(0, 1), (2, 0)]


def test_long_texts_that_differ_early_are_told_apart() -> None:
    """300 equal tokens stand at the end of both."""
    same = [7] * 300
    batch = Batch()
    batch.call(([1] * 150 + same, 1), (B, 1), ([2] * 150 + same, 1))

    assert batch.call(([2] * 150 + [*same, 8], 1), ([*B, 23], 1)) == [(2, 1), (1, 1)]


def test_a_text_that_another_one_begins_with_is_not_taken_for_it() -> None:
    batch = Batch()
    batch.call((A, 1), ([*A, 13], 1), (B, 1))

    assert batch.call(([*B, 23], 1), ([*A, 13, 14], 1), ([*A, 15], 1)) == [(2, 1), (1, 1), (0, 1)]


@pytest.mark.parametrize("calls", [1, 50])
def test_calls_without_rows_end_everything(calls: int) -> None:
    batch = Batch()
    for call in range(calls):
        batch.call((A, 1), ([*B, call], 1))
    for _ in range(PATIENCE + 1):
        batch.call()

    assert len(batch.requests) == 0
    assert all(batch.ended)
