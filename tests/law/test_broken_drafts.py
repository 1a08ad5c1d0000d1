"""The gate, for draft models that lack tokens of the target, or whose rows are no law after some texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from forerun.core.drafter import Drafter
from forerun.core.law import Law
from forerun.drafters.draft_model import ModelDraft
from forerun.errors import InvalidLogits
from forerun.policies.fixed import Fixed

from . import drafts
from .exact import Scenario, Table, TableSequence, truth, written

pytestmark = pytest.mark.usefixtures("tables")

Around = Callable[[Callable[[TableSequence], Drafter]], Callable[[TableSequence], Drafter]]
AROUND: dict[str, Around] = {"chain": lambda inner: inner, "tree": drafts.branched, "graph": drafts.merged}


class Broken(Table):
    """No law after a token 2, or where nothing is drafted yet and the text has three tokens."""

    def law(self, text: Sequence[int], history: Sequence[int] = ()) -> Law:
        if text[-1] == 2 or len(text) == 3:
            raise InvalidLogits("the model's logits contain NaN; check its weights and dtype")
        return super().law(text, history)


def of_fewer_tokens(table: Table, width: int) -> Callable[[TableSequence], Drafter]:
    shelf: Any = drafts.Shelf(table)
    shelf.runner.vocab_size = table.vocabulary
    return lambda target: ModelDraft(shelf, table.vocabulary, width=width)


@pytest.mark.parametrize("around", AROUND.values(), ids=AROUND)
def test_a_draft_model_with_fewer_tokens_leaves_the_law_as_it_is(around: Around) -> None:
    """Token 2, and the prompt's, are unknown to it."""
    scenario = Scenario(Table("p"), around(of_fewer_tokens(Table("q", 2), 3)), lambda: Fixed(2), length=3)
    assert written(scenario) == truth(scenario)


@pytest.mark.parametrize("around", AROUND.values(), ids=AROUND)
def test_a_draft_model_whose_rows_are_no_law_here_and_there_leaves_the_law_as_it_is(around: Around) -> None:
    scenario = Scenario(Table("p"), around(drafts.other_model(Broken("q"))), lambda: Fixed(2), length=3)
    assert written(scenario) == truth(scenario)


def test_a_target_whose_row_is_no_law_is_an_error() -> None:
    scenario = Scenario(Broken("p"), drafts.other_model(Table("q")), lambda: Fixed(2))
    with pytest.raises(InvalidLogits):
        written(scenario)
