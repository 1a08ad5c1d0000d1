import re
from functools import partial
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor
from transformers.generation import logits_process

from forerun.core.processors import REFUSED, STATELESS, classify, row_wise
from forerun.errors import UnsupportedOption

total = 0


def favour(ids: Tensor, scores: Tensor) -> Tensor:
    return scores + 1


def counting(ids: Tensor, scores: Tensor) -> Tensor:
    global total
    total += 1
    return scores


def closed_over() -> Any:
    calls = 0

    def processor(ids: Tensor, scores: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return scores

    return processor


def with_inner_variable(ids: Tensor, scores: Tensor) -> Tensor:
    bias = 1.0
    return (lambda: scores + bias)()


class Stateful(transformers.LogitsProcessor):
    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self.last = input_ids
        return scores


class Plain(transformers.LogitsProcessor):
    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        return scores

    def process(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self.last = input_ids
        return scores


class Wants(transformers.LogitsProcessor):
    def __call__(self, input_ids: Tensor, scores: Tensor, images: Tensor) -> Tensor:
        return scores


class Guided(logits_process.UnbatchedClassifierFreeGuidanceLogitsProcessor):
    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        return scores


class CountingTemperature(transformers.TemperatureLogitsWarper):
    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self.calls = 1
        return super().__call__(input_ids, scores)


@pytest.mark.parametrize("processor", [favour, with_inner_variable, partial(favour), torch.add])
def test_functions_of_ids_and_scores_are_beyond_doubt_and_stay_as_they_are(processor: Any) -> None:
    classified = classify([processor])
    assert classified.doubt is None
    assert classified.processors == (processor,)
    assert classified.own is not None
    assert not classified.holds


@pytest.mark.parametrize(
    ("processor", "stored"),
    [
        (counting, "total"),
        (partial(counting), "total"),
        (closed_over(), "calls"),
        (Stateful(), "last"),
        (Plain().process, "last"),
        (CountingTemperature(0.5), "calls"),
    ],
)
def test_what_stores_something_from_call_to_call_is_doubted_by_its_name(processor: Any, stored: str) -> None:
    doubt = classify([favour, processor]).doubt
    assert doubt is not None
    assert re.match(rf"logits processor \S+ may not be a function of the row .* \(it stores '{stored}'\)", doubt)


def test_a_function_around_a_processor_that_keeps_state_is_doubted_and_may_be_promised() -> None:
    saving = Stateful()
    around = lambda ids, scores: saving(ids, scores)  # noqa: E731
    assert "it stores 'last'" in (classify([around]).doubt or "")
    classified = classify([row_wise(around)])
    assert (classified.doubt, classified.own, classified.holds) == (None, None, False)


def test_a_processor_that_holds_what_could_change_is_watched() -> None:
    bias = torch.zeros(5)
    classified = classify([lambda ids, scores: scores + bias])
    assert classified.doubt is None
    assert classified.holds
    assert classify([Plain()]).holds
    (processor,) = classified.processors
    assert torch.equal(processor(torch.ones(1, 1), torch.ones(1, 5)), torch.ones(1, 5))
    bias += 1
    with pytest.raises(UnsupportedOption, match=r"<lambda> changed what it holds.*forerun\.row_wise"):
        processor(torch.ones(1, 1), torch.ones(1, 5))


def test_a_promised_processor_gets_one_row_at_a_time() -> None:
    shapes: list[tuple[int, ...]] = []

    def noted(ids: Tensor, scores: Tensor) -> Tensor:
        shapes.append((*ids.shape, *scores.shape))
        return scores + ids[0, 0]

    out = row_wise(noted)(torch.tensor([[1, 2], [3, 4]]), torch.zeros(2, 3))
    assert shapes == [(1, 2, 1, 3)] * 2
    assert out.tolist() == [[1] * 3, [3] * 3]


def test_a_function_of_allowed_tokens_is_judged_with_its_processor() -> None:
    prefix = transformers.PrefixConstrainedLogitsProcessor
    seen: list[int] = []
    tokens = [1, 2]
    assert classify([prefix(lambda row, ids: [row], 1)]).doubt is None
    assert classify([prefix(lambda row, ids: tokens, 1)]).holds
    assert "may change what it holds" in (classify([prefix(lambda row, ids: seen.append(1) or [1], 1)]).doubt or "")  # type: ignore[func-returns-value]
    assert classify([prefix(row_wise(lambda row, ids: seen), 1)]).doubt is None


def test_nested_lists_are_laid_flat() -> None:
    warper = transformers.TemperatureLogitsWarper(0.5)
    classified = classify([transformers.LogitsProcessorList([warper, favour]), (favour,)])
    assert classified.processors == (warper, favour, favour)
    assert classify([]).processors == ()


@pytest.mark.parametrize(
    ("processor", "reason"),
    [(Wants(), "callable with two arguments"), (lambda ids: ids, "callable with two arguments"), (3, "isn't callable")],
)
def test_what_can_not_be_called_with_ids_and_scores_is_refused(processor: Any, reason: str) -> None:
    with pytest.raises(UnsupportedOption, match=reason):
        classify([processor])


def test_a_subclass_of_a_refused_processor_is_refused() -> None:
    guided = Guided.__new__(Guided)
    with pytest.raises(
        UnsupportedOption, match="processor Guided can't be verified token by token: it runs a second text"
    ):
        classify([guided])


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_stateful_processor_of_transformers_is_refused_by_name(name: str) -> None:
    kind = getattr(logits_process, name)
    with pytest.raises(UnsupportedOption, match=f"logits processor {name} .*{REFUSED[name]}"):
        classify([kind.__new__(kind)])


@pytest.mark.parametrize("name", sorted(STATELESS))
def test_a_stateless_processor_of_transformers_passes_whatever_it_caches(name: str) -> None:
    kind = getattr(logits_process, name)
    classified = classify([kind.__new__(kind)])
    assert (len(classified.processors), classified.doubt, classified.own) == (1, None, None)


def test_every_processor_of_transformers_is_on_one_of_the_two_lists() -> None:
    kinds = [value for value in vars(logits_process).values() if isinstance(value, type)]
    names = {kind.__name__ for kind in kinds if issubclass(kind, logits_process.LogitsProcessor)}
    assert names - {"LogitsProcessor"} == STATELESS | REFUSED.keys()
