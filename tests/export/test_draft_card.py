"""The model card of a compact draft."""

from __future__ import annotations

from dataclasses import replace

import pytest

from forerun.export.draft_card import card_of
from forerun.models.files.compact_draft import DraftFacts
from forerun.testing import tiny_draft, tiny_model


@pytest.fixture(scope="module")
def facts() -> DraftFacts:
    return tiny_draft(tiny_model("llama"), (0, 3)).facts


def test_it_says_what_the_draft_is_and_how_to_use_it(facts: DraftFacts) -> None:
    card = card_of(facts)
    assert "2 decoder layers in int8" in card
    assert "It drafts among 97 tokens." in card
    assert "forerun generate the tiny model PROMPT --drafter draft_model --drafter-model tiny" in card


def test_it_tells_how_often_drafts_are_right_only_where_that_was_measured(facts: DraftFacts) -> None:
    assert "| right | 0.50 | 0.25 |" in card_of(facts)
    assert "## Figures" not in card_of(replace(facts, trained={}))


def test_it_tells_what_is_known_of_the_training(facts: DraftFacts) -> None:
    told = card_of(
        replace(facts, trained={"steps": 12, "recipe": {"learning_rate": 0.001}, "shape": {"layers": [1, 2]}})
    )
    assert "| steps | 12 |" in told
    assert "| learning_rate | 0.001 |" in told
    assert "| layers of the target that it began with | 1, 2 |" in told
    assert "## Training" not in card_of(replace(facts, trained={}))


def test_what_its_maker_says_stands_in_it(facts: DraftFacts) -> None:
    assert "\n\nMade of good data.\n\nLicence: Apache-2.0." in card_of(facts, "Made of good data.")
