"""A drafter with a sequence of its own takes it once, for the first text, and gives it back when the request ends."""

from __future__ import annotations

from collections.abc import Sequence as Series

import pytest

from forerun.core.chance import Seeded
from forerun.core.drive import drive
from forerun.core.forward import Rows
from forerun.core.values import Context
from forerun.drafters.pooled import Pooled
from forerun.models.packed.pool import SequencePool
from forerun.models.packed.runner import HFRunner
from forerun.models.packed.sequence import Sequence
from forerun.testing import tiny_model


class Reading(Pooled):
    def sequence(self, ids: Series[int]) -> Sequence:
        return self._taken(ids)

    async def begin(self, context: Context) -> Rows | None:
        return await self._taken(context.ids).sync(context.ids)


@pytest.fixture(scope="module")
def runner() -> HFRunner:
    return HFRunner(tiny_model("llama"))


def test_one_sequence_serves_the_whole_request(runner: HFRunner) -> None:
    drafter = Reading(SequencePool(runner))

    assert drafter.sequence([1, 2]) is drafter.sequence([3])


def test_the_next_request_goes_on_with_what_was_read(runner: HFRunner) -> None:
    pool = SequencePool(runner)
    drafter = Reading(pool)
    next(drive(drafter.draft(Context([1, 2, 3], Seeded(0)))))
    own = drafter.sequence([1, 2, 3])
    drafter.close()

    assert Reading(pool).sequence([1, 2, 3, 4]) is own


def test_two_requests_at_once_have_two_sequences(runner: HFRunner) -> None:
    pool = SequencePool(runner)

    assert Reading(pool).sequence([1, 2]) is not Reading(pool).sequence([1, 2])


def test_a_request_that_read_nothing_gives_nothing_back(runner: HFRunner) -> None:
    pool = SequencePool(runner)
    Reading(pool).close()

    assert pool.empty


def test_it_can_be_branched(runner: HFRunner) -> None:
    assert Reading(SequencePool(runner)).branches
