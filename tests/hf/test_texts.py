"""Stopping criteria see one token more at a time, and the streamer gets the steps of generate itself."""

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    EosTokenCriteria,
    GenerationConfig,
    MaxTimeCriteria,
    StoppingCriteria,
    StoppingCriteriaList,
    StopStringCriteria,
)
from transformers.generation.stopping_criteria import ConfidenceCriteria
from transformers.generation.streamers import BaseStreamer

import forerun
from forerun.core.values import Draft, Round, Verdict
from forerun.errors import UnsupportedOption
from forerun.hf.call import read_call
from forerun.hf.texts import Texts
from forerun.testing import tiny_model, tiny_tokenizer

from .prompts import BATCH, ENDS, MASK, PADDED, PROMPT


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
    """Stops a text after a token, or at a length; notes what it was shown."""

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
    sequences, expected, ours, theirs = both(model, hook, **PADDED, max_new_tokens=25, eos_token_id=ENDS)
    assert torch.equal(sequences, expected)
    assert ours == theirs
    assert len(ours) == 27


def test_the_streamer_is_found_from_inside_a_function_around_the_hook(model: Any, hook: Any) -> None:
    notes = Notes()

    def around(*args: Any, **kwargs: Any) -> Any:
        return hook(*args, **kwargs)

    model.generate(PROMPT, max_new_tokens=3, do_sample=False, custom_generate=around, streamer=notes)
    assert len(notes.given) == 5


def test_a_criterion_sees_every_token_once_and_nothing_after_it(model: Any, hook: Any) -> None:
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
    options = {**PADDED, "max_new_tokens": 25, "eos_token_id": ENDS}
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


class Counting(StoppingCriteria):
    """Counts its calls, notes all that it is shown, and stops everything, or a row, at a call."""

    def __init__(self, at: int, row: int | None = None) -> None:
        self.at = at
        self.row = row
        self.shown: list[Any] = []

    def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Any:
        self.shown.append((input_ids.tolist(), None if scores is None else [len(score) for score in scores]))
        if self.row is None:
            return len(self.shown) >= self.at
        flags = torch.zeros(len(input_ids), dtype=torch.bool)
        flags[self.row] = len(self.shown) >= self.at
        return flags


@pytest.mark.parametrize(("ends", "scored"), [(ENDS, False), (None, False), (None, True)], ids=["ends", "no", "scored"])
@pytest.mark.parametrize("row", [None, 0, 2])
def test_a_criterion_sees_the_whole_batch_in_step_and_is_called_as_often_as_in_generate(
    model: Any, hook: Any, row: int | None, ends: Any, scored: bool
) -> None:
    options = {**PADDED, "max_new_tokens": 16, "eos_token_id": ends, "do_sample": False}
    options |= {"return_dict_in_generate": True, "output_scores": scored}
    ours, theirs = Counting(7, row), Counting(7, row)
    written = model.generate(**options, stopping_criteria=[ours], custom_generate=hook)
    expected = model.generate(**options, stopping_criteria=[theirs])
    assert torch.equal(written.sequences, expected.sequences)
    assert ours.shown == theirs.shown
    assert len(ours.shown) >= 7


def test_a_criterion_that_knows_the_rows_of_its_batch_stops_them_as_in_generate(model: Any, hook: Any) -> None:
    class Budget(StoppingCriteria):
        def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Tensor:
            return torch.tensor([11, 17, 13]) <= input_ids.shape[1]

    options = {**PADDED, "max_new_tokens": 25, "eos_token_id": ENDS, "stopping_criteria": [Budget()]}
    sequences, expected, ours, theirs = both(model, hook, **options)
    assert torch.equal(sequences, expected)
    assert ours == theirs


def test_a_criterion_may_compare_the_rows(model: Any, hook: Any) -> None:
    class Meet(StoppingCriteria):
        def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> bool:
            return len(set(input_ids[:, -1].tolist())) < len(input_ids)

    options = {**PADDED, "max_new_tokens": 25, "eos_token_id": None, "stopping_criteria": [Meet()]}
    sequences, expected, ours, theirs = both(model, hook, **options)
    assert sequences.shape[1] < 33
    assert torch.equal(sequences, expected)
    assert ours == theirs


@pytest.mark.parametrize("options", [{"input_ids": PROMPT}, PADDED], ids=["one", "batch"])
def test_a_criterion_of_confidence_reads_the_scores_of_its_step(model: Any, hook: Any, options: Any) -> None:
    given = {**options, "max_new_tokens": 25, "do_sample": False, "output_scores": True}
    given |= {"return_dict_in_generate": True}
    lengths = set()
    for threshold in (0.02, 0.05, 0.2):
        criteria = [ConfidenceCriteria(threshold)]
        written = model.generate(**given, stopping_criteria=criteria, custom_generate=hook)
        assert torch.equal(written.sequences, model.generate(**given, stopping_criteria=criteria).sequences)
        lengths.add(written.sequences.shape[1])
    assert len(lengths) > 1


def test_where_a_criterion_may_read_the_scores_of_ended_texts_generates_own_loop_writes(model: Any, hook: Any) -> None:
    given = {**PADDED, "max_new_tokens": 25, "eos_token_id": ENDS, "do_sample": False, "output_scores": True}
    given |= {"return_dict_in_generate": True}
    criteria = [ConfidenceCriteria(0.05)]
    expected = model.generate(**given, stopping_criteria=criteria)
    with pytest.warns(UserWarning, match="ConfidenceCriteria may read the scores of texts that have ended"):
        written = model.generate(**given, stopping_criteria=criteria, custom_generate=hook)
    assert torch.equal(written.sequences, expected.sequences)


def test_a_criterion_with_ends_of_its_own_pads_as_in_generate(model: Any, hook: Any) -> None:
    class Own(Stop):
        eos_token_id = 81

    sequences, expected, ours, theirs = both(
        model, hook, **PADDED, max_new_tokens=25, stopping_criteria=[Own(token=81)]
    )
    assert torch.equal(sequences, expected)
    assert ours == theirs


def test_a_criterion_that_writes_into_the_ids_is_refused(model: Any, hook: Any) -> None:
    class Writing(StoppingCriteria):
        def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> bool:
            input_ids[:, -1] = 3
            return False

    with pytest.raises(UnsupportedOption, match="a stopping criterion wrote into the ids"):
        model.generate(PROMPT, max_new_tokens=4, stopping_criteria=[Writing()], custom_generate=hook)


def test_flags_that_belong_to_no_row_are_refused(model: Any, hook: Any) -> None:
    class Square(StoppingCriteria):
        def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Tensor:
            return torch.zeros(len(input_ids), 1, dtype=torch.bool)

    with pytest.raises(UnsupportedOption, match=r"gave flags of \[3, 3\] for 3 texts; a criterion returns one flag"):
        model.generate(**PADDED, max_new_tokens=4, stopping_criteria=[Square()], custom_generate=hook)


def test_a_row_that_holds_its_stop_string_is_written_no_further_though_the_batch_has_not_come_so_far() -> None:
    tokenizer = tiny_tokenizer()
    stop, *rest = tokenizer("mab", add_special_tokens=False).input_ids
    criteria = StoppingCriteriaList([StopStringCriteria(tokenizer, ["m"]), EosTokenCriteria([1])])
    config = GenerationConfig(pad_token_id=0, eos_token_id=1, max_length=20)
    texts = Texts(read_call(BATCH, [], criteria, config, {"attention_mask": MASK}, None))
    texts.take(0, written(rest))
    assert texts.done() == []
    texts.take(0, written([stop, *rest]))
    assert texts.done() == [0]
    texts.take(1, written([*rest, *rest]))
    texts.take(2, written([*rest, *rest]))
    assert texts.sequences()[:, 8:].tolist() == [[*rest, stop, 0], [*rest, *rest], [*rest, *rest]]


def written(tokens: list[int]) -> Round:
    return Round(tokens=tuple(tokens), draft=Draft(), verdict=Verdict((), tuple(tokens)), start=8)


def test_time_that_is_up_ends_a_text_after_its_first_token(model: Any, hook: Any) -> None:
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
