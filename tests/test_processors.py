from functools import partial
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor
from transformers.generation import logits_process

from forerun.errors import UnsupportedOption
from forerun.processors import REFUSED, STATELESS, stateless

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


@pytest.mark.parametrize("processor", [favour, Plain(), with_inner_variable, partial(favour), torch.add])
def test_functions_of_ids_and_scores_pass(processor: Any) -> None:
    assert stateless([processor]) == (processor,)


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
def test_what_stores_something_from_call_to_call_is_refused_by_its_name(processor: Any, stored: str) -> None:
    with pytest.raises(UnsupportedOption, match=rf"logits processor \S+ .* keeps state .*it stores '{stored}'"):
        stateless([favour, processor])


def test_a_function_around_a_processor_that_only_saves_work_passes() -> None:
    saving = Stateful()
    assert len(stateless([lambda ids, scores: saving(ids, scores)])) == 1


def test_nested_lists_are_laid_flat() -> None:
    warper = transformers.TemperatureLogitsWarper(0.5)
    assert stateless([transformers.LogitsProcessorList([warper, favour]), (favour,)]) == (warper, favour, favour)
    assert stateless([]) == ()


@pytest.mark.parametrize(
    ("processor", "reason"),
    [(Wants(), "callable with two arguments"), (lambda ids: ids, "callable with two arguments"), (3, "isn't callable")],
)
def test_what_can_not_be_called_with_ids_and_scores_is_refused(processor: Any, reason: str) -> None:
    with pytest.raises(UnsupportedOption, match=reason):
        stateless([processor])


def test_a_subclass_of_a_refused_processor_is_refused() -> None:
    guided = Guided.__new__(Guided)
    with pytest.raises(
        UnsupportedOption, match="processor Guided can't be verified token by token: it runs a second text"
    ):
        stateless([guided])


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_stateful_processor_of_transformers_is_refused_by_name(name: str) -> None:
    kind = getattr(logits_process, name)
    with pytest.raises(UnsupportedOption, match=f"logits processor {name} .*{REFUSED[name]}"):
        stateless([kind.__new__(kind)])


@pytest.mark.parametrize("name", sorted(STATELESS))
def test_a_stateless_processor_of_transformers_passes_whatever_it_caches(name: str) -> None:
    kind = getattr(logits_process, name)
    assert len(stateless([kind.__new__(kind)])) == 1


def test_every_processor_of_transformers_is_on_one_of_the_two_lists() -> None:
    kinds = [value for value in vars(logits_process).values() if isinstance(value, type)]
    names = {kind.__name__ for kind in kinds if issubclass(kind, logits_process.LogitsProcessor)}
    assert names - {"LogitsProcessor"} == STATELESS | REFUSED.keys()
