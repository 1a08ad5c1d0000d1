"""The exact gate for drafts of what earlier rounds and requests found likely."""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import final

import pytest

from forerun.core.drafter import Drafter
from forerun.core.forward import Rows
from forerun.core.policy import LengthPolicy
from forerun.core.values import Draft, Round, Step
from forerun.drafters.recycle import Recycle, Shared
from forerun.drafters.recycling.best_tokens import Ranking
from forerun.drafters.recycling.next_tokens import NextTokenTable
from forerun.drafters.recycling.rank_acceptance import RankAcceptance
from forerun.policies.fixed import Fixed

from .exact import PROMPT, WITH_HISTORY, Enumerated, Row, Scenario, Table, TableSequence, loop, truth, written

pytestmark = pytest.mark.usefixtures("tables", "table_rankings")


def table_ranking(rows: Rows, wanted: Sequence[int]) -> list[Ranking]:
    """In the place of best_tokens."""
    found: list[Ranking] = []
    for number in wanted:
        row: object = rows.logits[number]
        assert isinstance(row, Row)
        weights = row.table.raw(row.text)
        best = sorted(range(len(weights)), key=lambda token: -weights[token])
        found.append([(token, weights[token] / sum(weights)) for token in best if weights[token]])
    return found


@pytest.fixture
def table_rankings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("forerun.drafters.recycle"), "best_tokens", table_ranking)


def recycled(n: int, earlier: Table | None = None) -> Callable[[TableSequence], Drafter]:
    """With a new table for each run of the loop, which another request has filled if `earlier` is given."""

    def drafter(target: TableSequence) -> Drafter:
        table = NextTokenTable(PROMPT + 1, 16)
        if earlier is not None:
            for before in range(earlier.vocabulary):
                for token in range(earlier.vocabulary):
                    weights = earlier.raw((PROMPT, before, token))
                    table.put(before, token, [(other, weight / 9) for other, weight in enumerate(weights)])
        return Recycle(Shared(table, RankAcceptance(), lambda: table), n, (0.0,) * 5)

    return drafter


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("earlier", [None, Table("q")])
def test_what_was_kept_leaves_the_law_as_it_is(n: int, earlier: Table | None) -> None:
    scenario = Scenario(Table("p"), recycled(n, earlier), lambda: Fixed(2), length=3)
    assert written(scenario, merge=False) == truth(scenario)


def test_so_it_does_where_the_law_depends_on_the_text() -> None:
    target = Table("p", penalty=2)
    scenario = Scenario(target, recycled(2), lambda: Fixed(2), length=3, sampling=WITH_HISTORY)
    assert written(scenario, merge=False) == truth(scenario)


def test_there_are_drafts_here() -> None:
    drafted: list[Draft] = []

    @final
    class Noted(LengthPolicy):
        def should_stop(self, steps: Sequence[Step]) -> bool:
            return len(steps) == 2

        def observe(self, steps: Sequence[Step], round: Round) -> None:
            drafted.append(round.draft)

    scenario = Scenario(Table("p"), recycled(2, Table("q")), Noted, length=3)
    loop(scenario, Enumerated([]), 3)
    assert any(len(draft) > 2 for draft in drafted)
