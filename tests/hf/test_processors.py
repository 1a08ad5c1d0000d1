"""Processors that keep state, tell rows apart or write into what they get: the hook's text is generate's own.

Known ones are in test_hf_call.
"""

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import StoppingCriteria

import forerun
from forerun.errors import UnsupportedOption
from forerun.testing import tiny_model

from .prompts import ENDS, PROMPT
from .prompts import PADDED as ALL_PADDED

PADDED = {**ALL_PADDED, "eos_token_id": ENDS}


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny_model("llama")


class Tally:
    """A counter that a processor asks for help."""

    def __init__(self) -> None:
        self.calls = 0

    def next(self) -> int:
        self.calls += 1
        return self.calls


def with_helper() -> Any:
    tally = Tally()
    return lambda ids, scores: scores.index_fill(1, torch.tensor([tally.next() * 7 % 97]), 50.0)


def with_dictionary() -> Any:
    counts = {"calls": 0}

    def favour(ids: Tensor, scores: Tensor) -> Tensor:
        counts["calls"] += 1
        scores[:, counts["calls"] * 7 % 97] = 50.0
        return scores

    return favour


def with_iterator() -> Any:
    wanted = iter(range(5, 97, 2))
    return lambda ids, scores: scores.index_fill(1, torch.tensor([next(wanted)]), 50.0)


def with_list() -> Any:
    seen: list[int] = []

    def favour(ids: Tensor, scores: Tensor) -> Tensor:
        seen.append(int(ids[0, -1]))
        scores[:, len(seen) * 5 % 97] = 50.0
        return scores

    return favour


def with_generator_of_numbers() -> Any:
    numbers = torch.Generator().manual_seed(5)
    return lambda ids, scores: scores + 9 * torch.rand(scores.shape, generator=numbers)


def with_tensor() -> Any:
    kept = torch.zeros(97)

    class Fading:
        def __init__(self) -> None:
            self.kept = kept

        def __call__(self, ids: Tensor, scores: Tensor) -> Tensor:
            self.kept.mul_(0.9).add_(scores.mean(0))
            return scores - self.kept

    return Fading()


def by_row() -> Any:
    bias = torch.randn(3, 97, generator=torch.Generator().manual_seed(1)) * 4
    return lambda ids, scores: scores + bias[: len(scores)]


def across_rows() -> Any:
    """Rows follow the last tokens of the others."""

    def follow(ids: Tensor, scores: Tensor) -> Tensor:
        for row in range(len(ids)):
            for other in range(len(ids)):
                if other != row:
                    scores[row, (ids[other, -1] + 1) % 97] += 9.0
        return scores

    return follow


STATEFUL = [with_helper, with_dictionary, with_iterator, with_list, with_generator_of_numbers, with_tensor]


@pytest.fixture(scope="module", params=["lookup", "self"])
def drafting(request: Any) -> Any:
    return forerun.custom_generate(request.param)


@pytest.mark.parametrize("made", [*STATEFUL, by_row, across_rows])
@pytest.mark.parametrize("sample", [False, True], ids=["greedy", "sampled"])
def test_processors_that_keep_state_or_tell_rows_apart_see_what_generate_shows_them(
    model: Any, drafting: Any, made: Any, sample: bool
) -> None:
    """generate's own loop writes then, so even sampled text is the same to the token."""
    given = {**PADDED, "max_new_tokens": 14, "do_sample": sample, "top_k": 20}
    torch.manual_seed(3)
    expected = model.generate(**given, logits_processor=[made()])
    torch.manual_seed(3)
    assert not torch.equal(expected, model.generate(**given))
    torch.manual_seed(3)
    with pytest.warns(UserWarning, match="generate's own loop writes this text, without drafts: logits processor"):
        actual = model.generate(**given, logits_processor=[made()], custom_generate=drafting)
    assert torch.equal(actual, expected)


@pytest.mark.parametrize("made", STATEFUL)
def test_one_text_is_as_right_as_a_batch(model: Any, drafting: Any, made: Any) -> None:
    given = {"input_ids": PROMPT, "max_new_tokens": 14, "do_sample": False}
    expected = model.generate(**given, logits_processor=[made()])
    with pytest.warns(UserWarning, match=r"may not be a function of the row .* forerun.row_wise"):
        actual = model.generate(**given, logits_processor=[made()], custom_generate=drafting)
    assert torch.equal(actual, expected)


def forbidding() -> Any:
    forbidden = [20, 81, 68]

    def forbid(ids: Tensor, scores: Tensor) -> Tensor:
        scores[:, forbidden] = -torch.inf
        scores[:, ids[0, -1]] -= 1.3
        return scores

    return forbid


def test_a_processor_whose_code_shows_that_it_keeps_nothing_is_drafted_with(model: Any, drafting: Any) -> None:
    given = {"input_ids": PROMPT, "max_new_tokens": 14, "do_sample": False}
    expected = model.generate(**given, logits_processor=[forbidding()])
    assert torch.equal(model.generate(**given, logits_processor=[forbidding()], custom_generate=drafting), expected)


def test_a_promised_processor_is_drafted_with_in_a_batch(model: Any, drafting: Any) -> None:
    given = {**PADDED, "max_new_tokens": 14, "do_sample": False}
    shapes: set[tuple[int, ...]] = set()
    inner = forbidding()

    def noted(ids: Tensor, scores: Tensor) -> Tensor:
        shapes.add((*scores.shape,))
        return inner(ids, scores)

    expected = model.generate(**given, logits_processor=[forerun.row_wise(forbidding())])
    actual = model.generate(**given, logits_processor=[forerun.row_wise(noted)], custom_generate=drafting)
    assert torch.equal(actual, expected)
    assert shapes == {(1, 97)}


def test_a_function_of_allowed_tokens_that_keeps_state_sees_what_generate_shows_it(model: Any, drafting: Any) -> None:
    def made() -> Any:
        calls: list[int] = []

        def allowed(row: int, ids: Tensor) -> list[int]:
            calls.append(row)
            return [len(calls) % 97, (len(calls) + 40) % 97]

        return allowed

    given = {**PADDED, "max_new_tokens": 14, "do_sample": False}
    expected = model.generate(**given, prefix_allowed_tokens_fn=made())
    with pytest.warns(UserWarning, match=r"with test_a_function\S+allowed may not be a function of the row"):
        actual = model.generate(**given, prefix_allowed_tokens_fn=made(), custom_generate=drafting)
    assert torch.equal(actual, expected)


class Switch(StoppingCriteria):
    """Changes what a processor reads, and stops nothing."""

    def __init__(self, held: list[float]) -> None:
        self.held = held

    def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> bool:
        self.held[0] = float(input_ids.shape[1] % 3) * 8
        return False


def test_a_processor_that_reads_what_a_criterion_changes_sees_what_generate_shows_it(model: Any, drafting: Any) -> None:
    def made() -> dict[str, Any]:
        held = [0.0]
        favour = lambda ids, scores: scores.index_add(  # noqa: E731
            1, torch.tensor([9]), torch.tensor([[held[0]]])
        )
        return {"logits_processor": [favour], "stopping_criteria": [Switch(held)]}

    given = {"input_ids": PROMPT, "max_new_tokens": 14, "do_sample": False}
    expected = model.generate(**given, **made())
    assert not torch.equal(expected, model.generate(**given))
    with pytest.warns(UserWarning, match="a logits processor holds what Switch may change between two tokens"):
        actual = model.generate(**given, **made(), custom_generate=drafting)
    assert torch.equal(actual, expected)


def test_a_processor_that_writes_into_its_scores_leaves_the_raw_logits_as_they_were(model: Any, drafting: Any) -> None:
    given = {"input_ids": PROMPT, "max_new_tokens": 9, "do_sample": False, "return_dict_in_generate": True}
    given |= {"output_scores": True, "output_logits": True}

    def raw(ids: Tensor, scores: Tensor) -> Tensor:
        return forbidding()(ids, scores.clone())

    expected = model.generate(**given, logits_processor=[raw])
    actual = model.generate(**given, logits_processor=[forbidding()], custom_generate=drafting)
    for kept in ("scores", "logits"):
        for mine, yours in zip(getattr(actual, kept), getattr(expected, kept), strict=True):
            torch.testing.assert_close(mine, yours, atol=1e-4, rtol=1e-4)


def test_a_processor_that_writes_into_the_ids_is_refused(model: Any, drafting: Any) -> None:
    def write(ids: Tensor, scores: Tensor) -> Tensor:
        ids[:, -1] = 3
        return scores

    with pytest.raises(UnsupportedOption, match="a logits processor wrote into the ids"):
        model.generate(PROMPT, max_new_tokens=3, logits_processor=[write], custom_generate=drafting)


def test_a_processor_that_returns_another_shape_is_refused(model: Any, drafting: Any) -> None:
    with pytest.raises(
        UnsupportedOption, match=r"made \[1, 96\] of scores \[1, 97\]; it must return scores of the shape"
    ):
        model.generate(
            PROMPT, max_new_tokens=3, logits_processor=[lambda ids, scores: scores[:, 1:]], custom_generate=drafting
        )
