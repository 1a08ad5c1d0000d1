"""Trees and graphs on every family: windows, chunks and soft caps bite along each branch, for many sequences at once."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch

from forerun import Engine, load
from forerun.testing import FAMILIES, tiny_model

PROMPTS = ([5, 6, 7, 8, 5, 6, 7], [1], [2, 3] * 12, list(range(30, 47)))
NEW = 14
WINDOWED = sorted(name for name, options in FAMILIES.items() if {"sliding_window", "attention_chunk_size"} & {*options})
WIDE = {"n": 3, "min_confidence": 0.0, "sibling": 0.0, "leaf": 0.0, "budget": 30}
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "tree of an early exit": ("tree", {"of": "self", "exit_layer": 3, "n": 3, "min_confidence": 0.0}),
    "tree of skipped sublayers": (
        "tree",
        {"of": "self", "skip_attention": (1,), "skip_mlp": (2,), "min_confidence": 0.0},
    ),
    "graph of an early exit": ("graph", {"of": "self", "exit_layer": 3, "m": 0, **WIDE}),
    "graph of skipped sublayers": ("graph", {"of": "self", "skip_attention": (1,), "skip_mlp": (2,), "m": 1, **WIDE}),
}


@cache
def target(family: str) -> Any:
    return tiny_model(family)


@cache
def plain(family: str) -> Engine:
    return load(target(family))


@cache
def greedy(family: str) -> list[tuple[int, ...]]:
    """What transformers' own forwards write."""
    texts = []
    for prompt in PROMPTS:
        ids = list(prompt)
        with torch.inference_mode():
            for _ in range(NEW):
                ids.append(int(target(family)(torch.tensor([ids]), use_cache=False).logits[0, -1].argmax()))
        texts.append(tuple(ids[len(prompt) :]))
    return texts


def engine(family: str, drafter: str, options: dict[str, Any], k: int = 3) -> Engine:
    return plain(family).using(drafter, drafter_options=options, policy_options={"k": k})


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_text_is_transformers_own_in_a_batch(family: str, method: str) -> None:
    results = engine(family, *METHODS[method]).generate(list(PROMPTS), max_new_tokens=NEW)
    assert [result.ids for result in results] == greedy(family)
    assert all(result.stats.drafted > result.stats.rounds for result in results)


@pytest.mark.parametrize("family", FAMILIES)
def test_seeded_text_with_chosen_siblings_is_seeded_plain_text(family: str) -> None:
    options = {"of": "self", "exit_layer": 3, "siblings": "chosen", "min_confidence": 0.0}
    sampling = {"temperature": 0.9, "top_k": 30, "seed": 5, "max_new_tokens": NEW}
    expected = [result.ids for result in plain(family).generate(list(PROMPTS), **sampling)]
    for drafter, own in (("tree", options), ("graph", METHODS["graph of an early exit"][1])):
        together = engine(family, drafter, own).generate(list(PROMPTS), **sampling)
        assert [result.ids for result in together] == expected


@pytest.mark.parametrize("siblings", ["drawn", "chosen"])
@pytest.mark.parametrize("family", WINDOWED)
def test_a_branch_drafted_by_the_whole_model_is_all_accepted(family: str, siblings: str) -> None:
    """So the rows of a drafted branch are the verified ones, though windows and chunks move along it."""
    options = {"of": "self", "n": 3, "min_confidence": 0.0, "budget": 30, "siblings": siblings}
    greedily = engine(family, "tree", options).generate(list(PROMPTS), max_new_tokens=NEW)
    assert [result.ids for result in greedily] == greedy(family)
    assert all(result.stats.acceptance_per_position == (1.0, 1.0, 1.0) for result in greedily)
    if siblings == "drawn":
        drawn = engine(family, "tree", options).generate(list(PROMPTS), max_new_tokens=NEW, temperature=1.0, seed=2)
        assert all(result.stats.acceptance_per_position == (1.0, 1.0, 1.0) for result in drawn)
