"""forerun demo, on a tiny model."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from forerun.cli.demo.demo import DEFAULT, KINDS, best_weights
from forerun.cli.demo.measured import CARVED, FEW
from forerun.engine.methods import DEFAULT_DRAFTER, policy_for
from forerun.models.lean.native.library import choose

from ..conftest import Ran

Call = Callable[..., Ran]
QUICK = ("--max-new-tokens", "6", "--repeats", "2")
DEFAULT_NAME = f"the default ({DEFAULT_DRAFTER})"


def demo(forerun: Call, model: str, *given: str) -> Ran:
    ran = forerun("demo", "--model", model, *QUICK, *given)
    assert ran.status == 0, ran.err
    return ran


def test_it_shows_a_text_a_table_and_a_sentence_for_each_kind_of_prompts(forerun: Call, small: str) -> None:
    out = demo(forerun, small).out
    flat = " ".join(out.split())
    assert "Plain decoding:" in out
    assert f"the default: {DEFAULT.label}; its own int4 copy: {CARVED.label}." in out
    for described in KINDS.values():
        assert f"{described[0].upper()}{described[1:]}" in out
        assert f"On {described}: {DEFAULT_NAME} " in flat
    compared = flat.count("Times as fast as transformers' generate in bfloat16: ")
    assert compared + flat.count("transformers' generate can't be told") == len(KINDS)
    assert out.count("transformers' generate") >= 2 * len(KINDS)
    assert "4-bit weights" not in out


@pytest.mark.skipif(isinstance(choose(), str), reason="torch's 4-bit products round a row by those beside it")
def test_the_plain_and_the_speculative_text_are_equal(forerun: Call, small: str) -> None:
    parts = demo(forerun, small).out.split("\n\n")
    texts = [part.split(":\n", 1)[1] for part in parts if part.startswith(("Plain decoding", "With speculation"))]
    assert len(texts) == 2
    assert texts[0].strip() == texts[1].strip()


def test_as_json_every_figure_stands_alone(forerun: Call, small: str) -> None:
    told = json.loads(demo(forerun, small, "--json", "--weights", "int8").out)
    assert [kind["kind"] for kind in told["kinds"]] == list(KINDS)
    for kind in told["kinds"]:
        default, carved = kind["methods"]
        assert (default["method"], default["weights"]) == (DEFAULT_NAME, "int8")
        assert (carved["method"], carved["weights"]) == ("its own int4 copy", "bfloat16")
        assert carved["tokens_per_round"] > 1
        assert all(one["verdict"] in ("equal", "rounding") for one in kind["methods"])
        assert kind["transformers"]["tokens"] <= 2 * (FEW - 1)
        assert kind["transformers"]["tokens_per_second"] > 0
    assert len(told["said"]) >= len(KINDS) + 1
    assert told["threads"] >= 1


def test_a_slow_machine_repeats_less_and_says_that_this_tells_nothing(forerun: Call, small: str) -> None:
    out = demo(forerun, small, "--seconds", "0").out
    assert out.replace("transformers' generate can't be told", "").count("can't be told") == 2 * len(KINDS)


def test_the_default_is_the_default_of_the_other_commands() -> None:
    assert (DEFAULT.drafter, DEFAULT.policy) == (DEFAULT_DRAFTER, policy_for(DEFAULT_DRAFTER, None))


def test_on_a_processor_small_weights_are_the_fastest() -> None:
    assert best_weights() in ("int4", "bf16")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (("--weights", "int3"), "unknown weights 'int3'; known: float32, bf16, int8, int4"),
        (("--repeats", "0"), "repeats must be at least 1, got 0"),
        (("--max-new-tokens", "1"), "max_new_tokens must be at least 2 to be timed, got 1"),
    ],
)
def test_what_can_not_be_measured_is_refused(forerun: Call, small: str, given: tuple[str, str], sentence: str) -> None:
    ran = forerun("demo", "--model", small, *given)
    assert ran.status == 2
    assert sentence in ran.said
