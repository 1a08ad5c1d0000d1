from __future__ import annotations

from collections.abc import Callable

import pytest

from forerun.cli.demo import KINDS, methods_for

from .conftest import Ran

Call = Callable[..., Ran]
QUICK = ("--max-new-tokens", "6", "--repeats", "2")


def test_the_demo_shows_texts_tables_and_a_conclusion_for_each_method(forerun: Call, tiny: str) -> None:
    ran = forerun("demo", "--model", tiny, *QUICK)

    assert ran.status == 0, ran.err
    assert "Plain decoding:" in ran.out
    assert "Open questions" in ran.out
    assert ran.out.count("yes") >= 2 * len(methods_for(4))
    assert "auto: suffix; no trained draft is known for this model" in ran.out
    for name, method in methods_for(4).items():
        assert f"{name}: {method.label}" in ran.out
    for described in KINDS.values():
        assert ran.out.count(f"on {described}") == len(methods_for(4))


def test_the_plain_and_the_speculative_text_are_equal(forerun: Call, tiny: str) -> None:
    parts = forerun("demo", "--model", tiny, *QUICK).out.split("\n\n")
    texts = [part.split(":\n", 1)[1] for part in parts if part.startswith(("Plain decoding", "With forerun's default"))]

    assert len(texts) == 2
    assert texts[0].strip() == texts[1].strip()


def test_a_slow_machine_repeats_less_and_says_that_this_tells_nothing(forerun: Call, tiny: str) -> None:
    out = forerun("demo", "--model", tiny, *QUICK, "--seconds", "0").out

    assert out.count("can't be told") == 2 * len(methods_for(4))


@pytest.mark.parametrize("num_layers", [4, 12, 30])
def test_the_methods_fit_the_models_depth(num_layers: int) -> None:
    methods = methods_for(num_layers)
    skipped = methods["fewer layers"].drafter_options["skip_attention"]

    assert 1 <= methods["early exit"].drafter_options["exit_layer"] < num_layers
    assert skipped
    assert max(skipped) < num_layers
