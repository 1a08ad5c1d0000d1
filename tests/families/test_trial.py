"""What came of a family: right, refused, not made, or wrong."""

from __future__ import annotations

from typing import Any

import pytest

from forerun import load
from forerun.engine.engine import Engine
from forerun.families import trial
from forerun.families.small import VOCABULARY, small_model
from forerun.families.trial import (
    REFUSED,
    RUNS,
    UNMADE,
    WRONG,
    Outcome,
    by_structure,
    compare,
    difference,
    own_text,
    prompts,
    try_everything,
    try_family,
)


def test_a_family_that_runs_names_its_runners_and_whether_layers_can_be_left_out() -> None:
    assert try_family("llama") == Outcome(RUNS, runners=("lean", "hf"), skipping=True)
    assert try_family("bert") == Outcome(RUNS, runners=("hf",), skipping=False)


def test_a_refused_family_has_foreruns_sentence() -> None:
    outcome = try_family("bloom")
    assert outcome.result == REFUSED
    assert outcome.reason.startswith("BloomForCausalLM: position biases")


def test_what_transformers_itself_can_not_build_is_not_blamed() -> None:
    outcome = try_family("llama", {"num_attention_heads": 0})
    assert outcome.result == UNMADE
    assert outcome.reason


def test_what_can_not_be_built_small_may_be_refused_by_its_structure() -> None:
    refused = by_structure("xlstm")
    assert refused is not None
    assert "can't take back a rejected token" in refused.reason
    assert by_structure("llama") is None


def test_variants_are_counted_and_refused_ones_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        trial, "variants", lambda family: {"biased": {"attention_bias": True}, "alibi": {"alibi": True}}
    )
    monkeypatch.setattr(trial, "try_family", fake({"alibi": Outcome(REFUSED, "alibi it is")}))
    assert try_everything("falcon") == Outcome(RUNS, variants=1, refused={"alibi": "alibi it is"})
    monkeypatch.setattr(trial, "try_family", fake({"alibi": Outcome(WRONG, "token 3")}))
    assert try_everything("falcon") == Outcome(WRONG, "with alibi: token 3")


def fake(outcomes: dict[str, Outcome]) -> Any:
    return lambda family, changes=None: outcomes.get(next(iter(changes or {}), ""), Outcome(RUNS))


def test_another_text_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine runs another model than the one that it is compared with."""
    model, other = small_model("llama"), small_model("llama", seed=1)
    model.generation_config.eos_token_id = None
    outcome = compare(model, load(other))
    assert outcome.result == WRONG
    assert outcome.reason.startswith("none: token ")


def test_a_tie_is_no_difference() -> None:
    model = small_model("llama")
    prompt = prompts(None)[0]
    text = own_text(model, prompt)
    assert difference(model, [text], [text]) == ""
    assert "1 tokens, not" in difference(model, [text], [text[:1]])
    model.lm_head.weight.data[:] = model.lm_head.weight.data[:1]
    assert difference(model, [text], [[*text[:-1], (text[-1] + 1) % VOCABULARY]]) == ""


def test_prompts_are_longer_than_windows_and_fit_where_texts_are_limited() -> None:
    assert [len(prompt) for prompt in prompts(None)] == [21, 40]
    assert [len(prompt) for prompt in prompts(32)] == [8, 8]


def test_texts_that_hold_no_answer_are_refused() -> None:
    model = small_model("llama", {"max_position_embeddings": 20})
    assert isinstance(engine := load(model), Engine)
    assert compare(model, engine) == Outcome(REFUSED, "its texts hold at most 20 tokens")
