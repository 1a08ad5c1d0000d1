"""Stop strings and token healing, for which generate needs the tokenizer that it keeps from hooks."""

import inspect
from functools import partial
from typing import Any

import pytest
import torch
from transformers import StopStringCriteria, pipeline

import forerun
from forerun.testing import tiny_model, tiny_tokenizer

STRINGS = [(["Pm"], 12), (["zzz", "K", "M,"], 33), ("m", 12)]
PROMPT = torch.tensor([[55, 56, 57, 55, 56, 58, 55, 56]])
LONG = {"max_new_tokens": 40, "do_sample": False}


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return tiny_tokenizer()


@pytest.fixture(scope="module")
def model(tokenizer: Any) -> Any:
    return tiny_model("llama", vocab_size=len(tokenizer), seed=4)


@pytest.fixture(scope="module", params=["lookup", "self"])
def hook(request: Any) -> Any:
    return forerun.custom_generate(request.param)


@pytest.mark.parametrize(("strings", "length"), STRINGS)
def test_stop_strings_end_a_text_as_in_generate(
    model: Any, tokenizer: Any, hook: Any, strings: Any, length: int
) -> None:
    options = {"input_ids": PROMPT, **LONG, "stop_strings": strings, "tokenizer": tokenizer}
    expected = model.generate(**options)
    assert expected.shape[1] == length
    assert torch.equal(model.generate(**options, custom_generate=hook), expected)
    assert torch.equal(model.generate(**options, custom_generate=partial(hook)), expected)


def test_stop_strings_end_each_row_of_a_batch_as_in_generate(model: Any, tokenizer: Any, hook: Any) -> None:
    ids = torch.tensor([[0, 0, 55, 56, 57], [55, 56, 58, 55, 56], [0, 0, 0, 0, 70]])
    options = {"input_ids": ids, "attention_mask": (ids != 0).long(), "pad_token_id": 0, "eos_token_id": 1, **LONG}
    options |= {"stop_strings": ["K", "m"], "tokenizer": tokenizer}
    expected = model.generate(**options)
    assert (expected[:, -1] == 0).any()
    assert torch.equal(model.generate(**options, custom_generate=hook), expected)


def test_the_hooks_own_tokenizer_serves_where_generate_is_given_none(model: Any, tokenizer: Any) -> None:
    hook = forerun.custom_generate("lookup", tokenizer=tokenizer)
    options = {"input_ids": PROMPT, **LONG, "stop_strings": ["Pm"]}
    expected = model.generate(**options, tokenizer=tokenizer)
    assert torch.equal(model.generate(**options, custom_generate=hook), expected)


def test_stop_strings_without_any_tokenizer_are_refused_by_generate(model: Any, hook: Any) -> None:
    with pytest.raises(ValueError, match="we could not locate a tokenizer"):
        model.generate(PROMPT, **LONG, stop_strings=["Pm"], custom_generate=hook)


def test_stop_strings_of_the_generation_config_count(
    model: Any, tokenizer: Any, hook: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model.generation_config, "stop_strings", ["Pm"])
    options = {"input_ids": PROMPT, **LONG, "tokenizer": tokenizer}
    assert torch.equal(model.generate(**options, custom_generate=hook), model.generate(**options))


def test_a_criterion_of_stop_strings_ends_a_text_as_they_do(model: Any, tokenizer: Any, hook: Any) -> None:
    criteria = [StopStringCriteria(tokenizer, ["Pm"])]
    expected = model.generate(PROMPT, **LONG, stop_strings=["Pm"], tokenizer=tokenizer)
    assert torch.equal(model.generate(PROMPT, **LONG, stopping_criteria=criteria, custom_generate=hook), expected)


def test_a_tokenizer_that_nothing_needs_changes_nothing(model: Any, tokenizer: Any, hook: Any) -> None:
    expected = model.generate(PROMPT, **LONG)
    assert torch.equal(model.generate(PROMPT, **LONG, tokenizer=tokenizer, custom_generate=hook), expected)


@pytest.mark.parametrize("given", ["stop_strings", "stop_sequence"])
def test_a_pipeline_stops_at_strings_as_it_does_without_the_hook(
    model: Any, tokenizer: Any, hook: Any, given: str
) -> None:
    write = pipeline("text-generation", model=model, tokenizer=tokenizer)
    options = {**LONG, given: "m", **({"tokenizer": tokenizer} if given == "stop_strings" else {})}
    prompt = tokenizer.decode(PROMPT[0])
    expected = write(prompt, **options)
    assert expected[0]["generated_text"].endswith("m")
    assert write(prompt, **options, custom_generate=hook) == expected


def test_a_hook_tells_its_parameters_and_its_class_too(hook: Any) -> None:
    names = list(inspect.signature(hook).parameters)
    assert names[:2] == ["model", "input_ids"]
    assert "tokenizer" in names
    assert list(inspect.signature(type(hook)).parameters) == ["build", "tokenizer"]
