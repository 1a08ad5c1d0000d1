"""Processors of a request that keep state, write into their scores, or are promised to be functions of a row."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import forerun
from forerun.errors import UnsupportedOption
from forerun.testing import tiny_model

PROMPT = [5, 6, 7, 5, 6, 8, 5, 6]
PROMPTS = [PROMPT, [9, 4, 9, 4, 9], [33]]


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny_model("llama")


@pytest.fixture(scope="module", params=[("lookup", {}), ("self", {"exit_layer": 2})], ids=["lookup", "self"])
def engine(model: Any, request: Any) -> Any:
    return forerun.load(model, drafter=request.param[0], drafter_options=request.param[1])


def counting() -> Callable[[Tensor, Tensor], Tensor]:
    calls = {"calls": 0}

    def favour(ids: Tensor, scores: Tensor) -> Tensor:
        calls["calls"] += 1
        scores[:, calls["calls"] * 7 % 97] += 4
        return scores

    return favour


def forbid(ids: Tensor, scores: Tensor) -> Tensor:
    scores[:, ids[0, -1]] -= 1.3
    return scores


def by_generate(model: Any, prompt: list[int], processor: Any) -> list[int]:
    ids = torch.tensor([prompt])
    written = model.generate(ids, max_new_tokens=12, do_sample=False, logits_processor=[processor])
    return written[0, len(prompt) :].tolist()  # type: ignore[no-any-return]


def test_a_processor_that_may_keep_state_is_called_once_a_token_and_in_order(model: Any, engine: Any) -> None:
    with pytest.warns(UserWarning, match=r"nothing is drafted: logits processor \S+favour may not be a function"):
        result = engine.generate(PROMPT, max_new_tokens=12, processors=[counting()])
    assert list(result.ids) == by_generate(model, PROMPT, counting())
    assert list(result.ids) != by_generate(model, PROMPT, forbid)


def test_its_prompts_are_answered_one_after_the_other(model: Any, engine: Any) -> None:
    shared, other = counting(), counting()
    with pytest.warns(UserWarning, match="nothing is drafted"):
        results = engine.generate(PROMPTS, max_new_tokens=12, processors=[shared])
    assert [list(result.ids) for result in results] == [by_generate(model, prompt, other) for prompt in PROMPTS]


def test_requests_beside_it_are_right_too(model: Any, engine: Any) -> None:
    requests = [(prompt, {"max_new_tokens": 12, "processors": [forbid]}) for prompt in PROMPTS]
    requests.insert(1, (PROMPT, {"max_new_tokens": 12, "processors": [counting()]}))
    with pytest.warns(UserWarning, match="nothing is drafted"):
        results = dict(engine.each(requests))
    assert list(results.pop(1).ids) == by_generate(model, PROMPT, counting())
    assert [list(results[number].ids) for number in (0, 2, 3)] == [by_generate(model, p, forbid) for p in PROMPTS]


def test_a_stream_is_right_too(model: Any, engine: Any) -> None:
    with pytest.warns(UserWarning, match="nothing is drafted"):
        *_, last = engine.stream(PROMPT, max_new_tokens=12, processors=[counting()])
    assert list(last.result.ids) == by_generate(model, PROMPT, counting())
    assert last.result.stats.drafted == 0


def test_a_promised_processor_is_drafted_with(model: Any, engine: Any) -> None:
    calls: list[int] = []

    def noted(ids: Tensor, scores: Tensor) -> Tensor:
        calls.append(1)
        return forbid(ids, scores)

    result = engine.generate(PROMPT, max_new_tokens=12, processors=[forerun.row_wise(noted)])
    assert list(result.ids) == by_generate(model, PROMPT, forbid)
    assert calls


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_processor_that_writes_into_its_scores_leaves_the_raw_logprobs_as_they_were(
    engine: Any, temperature: float
) -> None:
    options = {"max_new_tokens": 12, "temperature": temperature, "seed": 3, "logprobs": 2}
    writing = engine.generate(PROMPT, **options, processors=[forbid])
    copying = engine.generate(PROMPT, **options, processors=[lambda ids, scores: forbid(ids, scores.clone())])
    assert writing.ids == copying.ids
    for mine, other in zip(writing.logprobs, copying.logprobs, strict=True):
        assert mine.logprob == pytest.approx(other.logprob, abs=1e-4)


def test_processed_logprobs_are_refused_where_rows_can_be_processed_once_only(engine: Any) -> None:
    options = {"logprobs": 1, "processed_logprobs": True, "max_new_tokens": 3}
    with pytest.raises(UnsupportedOption, match="processed_logprobs processes each row twice, and logits processor"):
        engine.generate(PROMPT, **options, processors=[counting()])
    assert len(engine.generate(PROMPT, **options, processors=[forbid]).ids) == 3
