"""Stopping criteria see one token more at a time, and the streamer gets the steps of generate itself."""

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import MaxTimeCriteria, StoppingCriteria, StopStringCriteria
from transformers.generation.streamers import BaseStreamer

import forerun
from forerun.testing import tiny_model, tiny_tokenizer

PROMPT = torch.tensor([[5, 6, 7, 5, 6, 8, 5, 6]])
BATCH = torch.tensor([[5, 6, 7, 5, 6, 8, 5, 6], [0, 0, 0, 9, 4, 9, 4, 9], [0, 0, 0, 0, 0, 0, 0, 33]])
MASK = torch.tensor([[1] * 8, [0] * 3 + [1] * 5, [0] * 7 + [1]])
PADDED = {"input_ids": BATCH, "attention_mask": MASK, "pad_token_id": 0}
EOS = [3, 18, 58]


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny_model("llama")


@pytest.fixture(
    scope="module",
    params=[("lookup", {}), ("self", {"exit_layer": 3})],
    ids=["lookup", "exit"],
)
def hook(request: Any) -> Any:
    drafter, options = request.param
    return forerun.custom_generate(drafter, drafter_options=options, policy_options={"k": 6})


class Notes(BaseStreamer):
    """Everything that a streamer is given."""

    def __init__(self) -> None:
        self.given: list[Any] = []

    def put(self, value: Tensor) -> None:
        self.given.append(value.tolist())

    def end(self) -> None:
        self.given.append("end")


class Stop(StoppingCriteria):
    """Stops a text behind a token, or at a length; notes what it was shown."""

    def __init__(self, token: int | None = None, length: int = 1000) -> None:
        self.token = token
        self.length = length
        self.shown: list[list[int]] = []
        self.scored: list[int | None] = []

    def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Tensor:
        self.shown += input_ids.tolist()
        self.scored.append(None if scores is None else len(scores))
        return (input_ids[:, -1] == self.token) | (input_ids.shape[1] >= self.length)


def both(model: Any, hook: Any, **options: Any) -> tuple[Tensor, Tensor, list[Any], list[Any]]:
    """Sequences and streams with the hook and without it."""
    ours, theirs = Notes(), Notes()
    with_hook = model.generate(**options, do_sample=False, custom_generate=hook, streamer=ours)
    return with_hook, model.generate(**options, do_sample=False, streamer=theirs), ours.given, theirs.given


def test_the_streamer_gets_the_prompt_then_token_by_token_then_the_end(model: Any, hook: Any) -> None:
    sequences, expected, ours, theirs = both(model, hook, input_ids=PROMPT, max_new_tokens=12)
    assert torch.equal(sequences, expected)
    assert ours == theirs
    assert ours == [PROMPT.tolist(), *([token] for token in sequences[0, 8:].tolist()), "end"]


def test_the_streamer_gets_the_steps_of_a_batch_with_its_padding(model: Any, hook: Any) -> None:
    sequences, expected, ours, theirs = both(model, hook, **PADDED, max_new_tokens=25, eos_token_id=EOS)
    assert torch.equal(sequences, expected)
    assert ours == theirs
    assert len(ours) == 27


def test_the_streamer_is_found_from_inside_a_function_around_the_hook(model: Any, hook: Any) -> None:
    notes = Notes()

    def around(*args: Any, **kwargs: Any) -> Any:
        return hook(*args, **kwargs)

    model.generate(PROMPT, max_new_tokens=3, do_sample=False, custom_generate=around, streamer=notes)
    assert len(notes.given) == 5


def test_a_criterion_sees_every_token_once_and_nothing_behind_it(model: Any, hook: Any) -> None:
    stop = Stop()
    written = model.generate(
        PROMPT, max_new_tokens=12, do_sample=False, stopping_criteria=[stop], custom_generate=hook
    )[0].tolist()
    assert stop.shown == [written[:end] for end in range(9, 21)]
    assert stop.scored == [None] * 12


def test_a_criterion_sees_the_scores_up_to_its_token_if_they_are_kept(model: Any, hook: Any) -> None:
    stop = Stop()
    options = {"max_new_tokens": 6, "do_sample": False, "return_dict_in_generate": True, "output_scores": True}
    model.generate(PROMPT, **options, stopping_criteria=[stop], custom_generate=hook)
    assert stop.scored == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("length", range(9, 16))
def test_text_ends_at_the_very_token_where_a_criterion_holds(model: Any, hook: Any, length: int) -> None:
    options = {"max_new_tokens": 12, "do_sample": False}
    written = model.generate(PROMPT, **options, stopping_criteria=[Stop(length=length)], custom_generate=hook)
    assert torch.equal(written, model.generate(PROMPT, **options)[:, :length])


def test_a_text_of_a_batch_that_a_criterion_ends_is_padded(model: Any, hook: Any) -> None:
    options = {**PADDED, "max_new_tokens": 25, "eos_token_id": EOS}
    plain = model.generate(**options, do_sample=False)
    token = int(plain[2, 12])
    sequences, expected, ours, theirs = both(model, hook, **options, stopping_criteria=[Stop(token)])
    assert torch.equal(sequences, expected)
    assert ours == theirs
    assert not torch.equal(expected, plain[:, : expected.shape[1]])


@pytest.mark.parametrize("token", [5, 20, 57, 81])
def test_without_an_end_of_sequence_a_text_is_written_on_until_the_whole_batch_has_stopped(
    model: Any, hook: Any, token: int
) -> None:
    options = {**PADDED, "max_new_tokens": 25, "stopping_criteria": [Stop(token)]}
    sequences, expected, ours, theirs = both(model, hook, **options)
    assert torch.equal(sequences, expected)
    assert ours == theirs


def test_the_scores_of_a_batch_without_an_end_of_sequence_are_generates_own(model: Any, hook: Any) -> None:
    options = {**PADDED, "max_new_tokens": 25, "stopping_criteria": [Stop(81)], "do_sample": False}
    options |= {"return_dict_in_generate": True, "output_scores": True}
    ours, theirs = model.generate(**options, custom_generate=hook), model.generate(**options)
    assert len(ours.scores) == len(theirs.scores)
    for mine, yours in zip(ours.scores, theirs.scores, strict=True):
        torch.testing.assert_close(mine, yours, atol=1e-4, rtol=1e-4)


def test_stop_strings_end_a_text_as_in_generate() -> None:
    """generate keeps the tokenizer from a hook, so the criterion is passed and not made from stop_strings."""
    tokenizer = tiny_tokenizer()
    model = tiny_model("llama", vocab_size=len(tokenizer), seed=4)
    options = {"input_ids": PROMPT + 50, "max_new_tokens": 40, "do_sample": False}
    for strings, length in ((["Pm"], 12), (["zzz", "K", "M,"], 33), ([".", "m"], 12)):
        expected = model.generate(**options, stop_strings=strings, tokenizer=tokenizer)
        assert expected.shape[1] == length
        criteria = [StopStringCriteria(tokenizer, strings)]
        for drafter in ("lookup", "self"):
            hook = forerun.custom_generate(drafter)
            assert torch.equal(model.generate(**options, stopping_criteria=criteria, custom_generate=hook), expected)


def test_time_that_is_up_ends_a_text_behind_its_first_token(model: Any, hook: Any) -> None:
    criteria = [MaxTimeCriteria(-1.0)]
    written = model.generate(
        PROMPT, max_new_tokens=9, do_sample=False, stopping_criteria=criteria, custom_generate=hook
    )
    assert written.shape[1] == 9


def test_a_streamer_that_fails_ends_the_call_and_the_hook_goes_on(model: Any, hook: Any) -> None:
    class Broken(Notes):
        def put(self, value: Tensor) -> None:
            super().put(value)
            if len(self.given) == 3:
                raise ConnectionError("the reader left")

    with pytest.raises(ConnectionError):
        model.generate(**PADDED, max_new_tokens=9, do_sample=False, custom_generate=hook, streamer=Broken())
    options = {"max_new_tokens": 9, "do_sample": False}
    assert torch.equal(model.generate(PROMPT, **options, custom_generate=hook), model.generate(PROMPT, **options))
