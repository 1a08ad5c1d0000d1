"""Structured output of whole engines: what is written fits, with every way to draft and to stop."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import jsonschema
import pytest
import torch

import forerun
from forerun import Engine, UnsupportedOption
from forerun.testing import END, tiny_model, tiny_tokenizer

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 5},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "kind": {"enum": ["red", "green", None]},
        "tags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2},
    },
    "required": ["name", "age", "kind", "tags"],
    "additionalProperties": False,
}
DRAFTERS: dict[str, dict[str, Any]] = {
    "none": {},
    "suffix": {},
    "self": {"exit_layer": 2},
    "tree": {"of": "self", "exit_layer": 2, "n": 2},
    "graph": {"of": "self", "exit_layer": 2, "n": 2},
}


@cache
def plain() -> Engine:
    model = tiny_model("llama", vocab_size=260, eos_token_id=END, max_position_embeddings=512)
    return forerun.load(model, tokenizer=tiny_tokenizer())


@cache
def engine(drafter: str) -> Engine:
    return plain().using(drafter, "fixed", drafter_options=DRAFTERS[drafter])


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_sampled_answers_fit_the_schema(drafter: str) -> None:
    given: dict[str, Any] = {"json_schema": SCHEMA, "temperature": 1.2, "max_new_tokens": 200}
    for seed in range(6):
        result = engine(drafter).generate([1, 2, 3], seed=seed, **given)
        assert result.text is not None
        jsonschema.validate(json.loads(result.text), SCHEMA)
        assert result.finish_reason == "stop"
        assert json.dumps(json.loads(result.text), ensure_ascii=False) == result.text or "\\" in result.text
        assert result.stats.forced > 20


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_greedy_answers_equal_those_without_drafts(drafter: str) -> None:
    given: dict[str, Any] = {"json_schema": SCHEMA, "max_new_tokens": 200}
    drafted, undrafted = (engine(drafter).generate([4, 5], speculate=speculate, **given) for speculate in (True, False))
    assert drafted.ids == undrafted.ids
    assert undrafted.stats.drafted == undrafted.stats.forced == 0
    assert drafted.stats.rounds < undrafted.stats.rounds / 2


def test_each_option_is_followed() -> None:
    def text(**given: Any) -> str:
        result = engine("self").generate([7], temperature=1.0, seed=3, max_new_tokens=40, **given)
        assert result.finish_reason == "stop"
        return result.text or ""

    assert re.fullmatch("[a-c]{2,4}-[0-9]", text(regex="[a-c]{2,4}-[0-9]"))
    assert text(choice=["yes", "no"]) in ("yes", "no")
    assert text(grammar='start: "(" start ")" | "x"').strip("()") == "x"
    assert isinstance(json.loads(text(json_schema='{"type": "array", "maxItems": 1, "items": {"type": "null"}}')), list)
    began = engine("self").generate([7], json_object=True, max_new_tokens=5)
    assert (began.text or "").startswith("{")


def test_requests_of_a_batch_have_grammars_of_their_own() -> None:
    requests: list[Any] = [
        ([1], {"choice": ["left", "right"], "max_new_tokens": 9}),
        ([1], {"regex": "[0-9]{3}", "max_new_tokens": 9}),
        ([1], {"max_new_tokens": 9}),
        ([1], {"regex": "[0-9]{3}", "temperature": 1.0, "seed": 1, "max_new_tokens": 9}),
    ]
    together = dict(engine("self").each(requests))
    for number, (prompt, options) in enumerate(requests):
        assert together[number].ids == engine("self").generate(prompt, **options).ids
    assert together[0].text in ("left", "right")


def test_a_later_turn_resumes_the_prefix_and_follows_its_own_grammar() -> None:
    first = engine("self").generate([1, 2, 3], regex="[a-c]{6}", max_new_tokens=9)
    assert (first.text or "").isalpha()
    second = engine("self").generate([1, 2, 3, *first.ids, 4], regex="[0-9]{4}", max_new_tokens=9)
    fresh = forerun.load(tiny_model("llama", vocab_size=260, eos_token_id=END), tokenizer=tiny_tokenizer())
    assert second.ids == fresh.generate([1, 2, 3, *first.ids, 4], regex="[0-9]{4}", max_new_tokens=9).ids


def test_an_answer_ends_without_an_end_of_sequence_where_only_that_could_follow() -> None:
    result = engine("none").generate([1], choice=["abc"], max_new_tokens=9)
    assert (result.text, len(result.ids), result.finish_reason) == ("abc", 3, "stop")


def test_an_answer_that_may_go_on_ends_with_an_end_of_sequence_and_goes_on_without_one() -> None:
    open_ended = {"regex": "a*", "max_new_tokens": 6}
    results = [engine("none").generate([n], temperature=1.5, seed=n, **open_ended) for n in range(12)]
    ended = [result for result in results if result.finish_reason == "stop"]
    assert ended
    assert all(result.ids[-1] == END for result in ended)
    going = engine("none").generate([ended[0].prompt_tokens], ignore_eos=True, **open_ended)
    assert (going.text, going.finish_reason) == ("aaaaaa", "length")
    assert engine("none").generate([1], ignore_eos=True, regex="a{3}").text == "aaa"


@pytest.mark.parametrize("new", [1, 2, 5, 9, 10])
def test_room_cuts_forced_tokens(new: int) -> None:
    result = engine("none").generate([1], choice=["abcdefghi"], max_new_tokens=new)
    assert result.text == "abcdefghi"[:new]
    assert result.finish_reason == ("stop" if new >= 9 else "length")


def test_log_probabilities_are_those_among_the_allowed_tokens() -> None:
    given: dict[str, Any] = {"choice": ["x1", "y2", "z3"], "logprobs": 5, "max_new_tokens": 4}
    runs = [engine(drafter).generate([9], **given) for drafter in ("none", "self")]
    runs.append(engine("none").generate([9], speculate=False, **given))
    free = plain().generate([9], logprobs=259, max_new_tokens=1)
    assert free.logprobs is not None
    first = dict(free.logprobs[0].top)
    for result in runs:
        assert result.logprobs is not None
        letter, digit = result.logprobs
        ids = tiny_tokenizer().encode("xyz")
        expected = torch.tensor([first[token] for token in ids]).log_softmax(-1)
        assert {token: pytest.approx(value, abs=1e-4) for token, value in letter.top} == dict(
            zip(ids, expected.tolist(), strict=True)
        )
        assert digit.top == ((digit.token, 0.0),)
        assert digit.logprob == 0


def test_processed_log_probabilities_have_the_mask_and_the_temperature() -> None:
    given: dict[str, Any] = {"choice": ["x", "y"], "logprobs": 5, "temperature": 2.0, "seed": 0}
    raw, processed = (
        engine("none").generate([9], processed_logprobs=flag, presence_penalty=1.0, **given).logprobs
        for flag in (False, True)
    )
    assert raw is not None
    assert processed is not None
    halved = torch.tensor([value for _, value in raw[0].top]).div(2).log_softmax(-1)
    assert [value for _, value in processed[0].top] == pytest.approx(halved.tolist(), abs=1e-5)


def test_processors_and_penalties_come_before_the_mask() -> None:
    def only_z(ids: Any, scores: Any) -> Any:
        own = torch.full_like(scores, -1e9)
        own[:, tiny_tokenizer().encode("z")] = 0
        return own

    result = engine("self").generate([9], choice=["x", "y"], processors=forerun.row_wise(only_z))
    assert result.text == "x"  # the first among equals


def test_where_processors_forbid_all_that_the_grammar_allows_it_says_so() -> None:
    def nothing(ids: Any, scores: Any) -> Any:
        return torch.full_like(scores, -torch.inf)

    with pytest.raises(forerun.InvalidLogits, match="after processors and grammar"):
        engine("self").generate([9], choice=["x", "y"], processors=forerun.row_wise(nothing))


def test_a_prediction_is_followed_as_far_as_the_grammar_allows_it() -> None:
    wanted = engine("none").generate([1, 2], regex="[a-e]{12}", max_new_tokens=20)
    told = engine("none").generate([1, 2], regex="[a-e]{12}", max_new_tokens=20, prediction=wanted.ids)
    assert told.ids == wanted.ids
    assert told.stats.rounds < wanted.stats.rounds
    other = engine("none").generate([1, 2], regex="[0-9]{12}", max_new_tokens=20, prediction=wanted.ids)
    assert other.stats.drafted == 0


def test_engines_of_one_model_share_the_tables() -> None:
    assert engine("self")._grammars is plain()._grammars


def test_what_is_no_good_is_refused_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def ran(self: Engine, *given: Any) -> Any:
        raise AssertionError("something ran")

    monkeypatch.setattr(Engine, "_run", ran)
    for given, said in (
        ({"regex": "(a"}, "unclosed group"),
        ({"json_schema": {"type": "objekt"}}, "Invalid type"),
        ({"json_schema": "{"}, "json_schema must be a JSON schema"),
        ({"regex": "a", "choice": ["b"]}, "an answer follows one of"),
    ):
        with pytest.raises(ValueError, match=said):
            plain().generate([1], **given)  # type: ignore[arg-type]


def test_without_a_tokenizer_it_says_what_is_missing() -> None:
    with pytest.raises(UnsupportedOption, match="a grammar needs a tokenizer"):
        forerun.load(tiny_model("llama")).generate([1], regex="a")
