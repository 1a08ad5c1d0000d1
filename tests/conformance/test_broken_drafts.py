"""A draft model that lacks tokens of the target, turns NaN or has a short context costs drafts, never the request."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

import forerun
from forerun.core.decode import MOST_FAILED
from forerun.models.files.adapter import write_adapter
from forerun.testing import tiny_adapter, tiny_model

PROMPT = [5, 60, 7, 8, 5, 60, 7]
NEW = 40
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "chain": ("draft_model", {}),
    "tree": ("tree", {"of": "draft_model", "min_confidence": 0.0}),
    "graph": ("graph", {"of": "draft_model", "min_confidence": 0.0, "leaf": 0.0}),
    "hybrid": ("hybrid", {"then": "draft_model", "min_ngram": 3}),
}
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"temperature": 1.0, "seed": 3},
    {"repetition_penalty": 1.3, "no_repeat_ngram": 3},
)


@cache
def target() -> Any:
    return tiny_model("llama")


@cache
def plain() -> forerun.Engine:
    return forerun.load(target())


KINDS: dict[str, dict[str, Any]] = {
    "of fewer tokens": {"vocab_size": 20},
    "with a short context": {"max_position_embeddings": 16},
    "NaN later": {},
    "NaN everywhere": {},
}
POISONED = {"NaN later": list(range(61, 97)), "NaN everywhere": list(range(97))}


def engine(kind: str, method: str) -> forerun.Engine:
    drafter, own = METHODS[method]
    model = tiny_model("llama", seed=7, num_hidden_layers=1, **KINDS[kind])
    built = forerun.load(target(), drafter=drafter, drafter_options={**own, "model": model})
    with torch.no_grad():  # loading would refuse it
        model.model.embed_tokens.weight[POISONED.get(kind, [])] = torch.nan
    return built


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_target_goes_on(kind: str, method: str) -> None:
    drafting = engine(kind, method)
    for options in OPTIONS:
        result = drafting.generate(PROMPT, max_new_tokens=NEW, **options)
        assert len(result.ids) == NEW
        if "temperature" not in options:
            assert result.ids == plain().generate(PROMPT, max_new_tokens=NEW, **options).ids


@pytest.mark.parametrize("method", METHODS)
def test_rows_that_are_no_law_are_counted_and_soon_asked_for_no_more(method: str) -> None:
    stats = engine("NaN everywhere", method).generate(PROMPT, max_new_tokens=NEW).stats
    assert stats.invalid_rows == stats.draft_forwards == MOST_FAILED
    assert stats.as_dict()["invalid_rows"] == MOST_FAILED


def test_a_sound_draft_has_no_invalid_rows() -> None:
    assert engine("of fewer tokens", "chain").generate(PROMPT, max_new_tokens=NEW).stats.invalid_rows == 0


@pytest.mark.parametrize("inputs", ["state", "state+token"])
@pytest.mark.parametrize("method", ["chain", "tree", "graph", "hybrid"])
def test_an_exit_adapter_that_turns_nan_leaves_the_text_as_it_is(method: str, inputs: str, tmp_path: Path) -> None:
    file = tiny_adapter(target(), 2, inputs)
    file.weights["fuse.weight"][0] = torch.nan
    write_adapter(file, tmp_path / "adapter")
    options: dict[str, Any] = {"adapter": str(tmp_path / "adapter")}
    names = {"chain": ("exit_adapter", {}), "hybrid": ("hybrid", {"then": "exit_adapter", "min_ngram": 3})}
    drafter, own = names.get(method, (method, {"of": "exit_adapter"}))
    drafting = forerun.load(target(), drafter=drafter, drafter_options={**own, **options})
    result = drafting.generate(PROMPT, max_new_tokens=NEW)
    assert result.ids == plain().generate(PROMPT, max_new_tokens=NEW).ids
    assert result.stats.invalid_rows > 0


def test_forwards_of_which_no_step_came_are_counted() -> None:
    """A tree whose first nodes are too dear still asked for their row."""
    drafting = forerun.load(
        target(), drafter="tree", drafter_options={"of": "self", "exit_layer": 2, "min_confidence": 1.0}
    )
    stats = drafting.generate(PROMPT, max_new_tokens=NEW).stats
    assert stats.drafted == 0
    assert stats.draft_forwards == stats.rounds - 1  # the last round has room for one token, the target's own
    assert stats.draft_forward_seconds > 0
