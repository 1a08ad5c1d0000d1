from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from forerun.cli.demo import KINDS, conclusion, effect, methods_for

from .conftest import Ran


def test_the_demo_shows_texts_tables_and_a_conclusion_for_each_method(forerun: Callable[..., Ran], tiny: str) -> None:
    ran = forerun("demo", "--model", tiny, "--max-new-tokens", "6", "--repeats", "1")

    assert ran.status == 0, ran.err
    assert "Plain decoding:" in ran.out
    assert "Open questions" in ran.out
    assert ran.out.count("yes") >= 2 * len(methods_for(4))
    for method in methods_for(4):
        assert f"{method.label}: it " in ran.out
    for described in KINDS.values():
        assert ran.out.count(f"on {described}") == len(methods_for(4))


def test_the_plain_and_the_speculative_text_are_equal(forerun: Callable[..., Ran], tiny: str) -> None:
    lines = forerun("demo", "--model", tiny, "--max-new-tokens", "6", "--repeats", "1").out.split("\n\n")
    texts = [part.split(":\n", 1)[1] for part in lines if part.startswith(("Plain decoding", "With lookup"))]

    assert len(texts) == 2
    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    ("ratios", "words"),
    [
        ([1.4, 1.5, 1.6], "it helped (1.50 times as fast)"),
        ([0.5, 0.6, 0.7], "it cost time (0.60 times as fast)"),
        ([0.9, 1.0, 1.1], "it made no clear difference (0.95 to 1.05)"),
        ([0.8, 1.6], "it made no clear difference (1.00 to 1.40)"),
        ([1.04, 1.04], "it made no clear difference (1.04 to 1.04)"),
    ],
)
def test_the_conclusion_follows_from_the_figures(ratios: list[float], words: str) -> None:
    assert effect(ratios) == words


def test_an_unequal_output_is_not_hidden() -> None:
    equal: Any = SimpleNamespace(ratios=[1.5], identical=True)
    where = SimpleNamespace(question=0, turn=0, position=4, margin=2.0)
    unequal: Any = SimpleNamespace(ratios=[0.5], identical=False, difference=where, verdict="bug", rounding_margin=0.0)
    said = conclusion("lookup", {"repeating": equal, "open": unequal})

    assert said.startswith("lookup: it helped (1.50 times as fast) on answers that repeat the prompt; it cost time")
    assert "Outputs: DIFFERENT" in said


@pytest.mark.parametrize("num_layers", [4, 12, 30])
def test_the_methods_fit_the_models_depth(num_layers: int) -> None:
    lookup, exit_half, thinned = methods_for(num_layers)

    assert lookup.drafter == "lookup"
    assert 1 <= exit_half.drafter_options["exit_layer"] < num_layers
    assert thinned.drafter_options["skip_attention"]
    assert max(thinned.drafter_options["skip_attention"]) < num_layers
