"""An answer folded from rounds."""

from __future__ import annotations

import pytest
import torch

from forerun.core.chance import Seeded
from forerun.core.values import ROOT, Context, Draft, Round, Sampling, Verdict
from forerun.engine.answer import Answer, LogprobOptions
from forerun.testing import END, tiny_tokenizer

TOKENIZER = tiny_tokenizer()
VOCABULARY = len(TOKENIZER)


def context(**options: object) -> Context:
    return Context(**{"ids": [1, 2], "chance": Seeded(0), "max_new_tokens": 50, "eos": frozenset({END}), **options})  # type: ignore[arg-type]


def round_of(text: str, accepted: int, request: Context, logits: torch.Tensor | None = None) -> Round:
    """A round that emits text; all but the tokens after `accepted` came from the draft."""
    tokens = tuple(TOKENIZER(text).input_ids)
    start = len(request.ids)
    emitted = request.extend(tokens)
    draft = Draft(tokens[:accepted], tuple(range(ROOT, accepted - 1)), (None,) * accepted)
    return Round(emitted, draft, Verdict(tuple(range(accepted)), tokens), start, prefill=start == 2, logits=logits)


def test_pieces_and_result_agree() -> None:
    request = context()
    answer = Answer(request, TOKENIZER)
    pieces = [*answer.take(round_of("a", 0, request)), *answer.take(round_of("bcd", 2, request)), answer.end()]
    assert [piece.text for piece in pieces] == ["a", "b", "c", "d", ""]
    assert [piece.drafted for piece in pieces] == [False, True, True, False, False]
    result = pieces[-1].result
    assert result is not None
    assert result.text == "abcd"
    assert result.ids == tuple(TOKENIZER("abcd").input_ids)
    assert result.prompt_tokens == 2
    assert result.stats.tokens == 4


def test_the_result_comes_with_the_last_piece_only() -> None:
    request = context()
    answer = Answer(request, TOKENIZER)
    assert all(piece.result is None for piece in answer.take(round_of("ab", 1, request)))


def test_an_end_of_sequence_is_in_the_ids_but_not_in_the_text() -> None:
    request = context()
    answer = Answer(request, TOKENIZER)
    list(answer.take(round_of("ab<end>", 2, request)))
    result = answer.end().result
    assert result is not None
    assert (result.text, result.ids[-1], result.finish_reason) == ("ab", END, "stop")


def test_a_stop_string_stops_and_drops_the_rest_of_the_round() -> None:
    request = context()
    answer = Answer(request, TOKENIZER, stop=("cd",))
    pieces = list(answer.take(round_of("abcdef", 5, request)))
    assert answer.stopped()
    assert len(pieces) == 4
    result = answer.end().result
    assert result is not None
    assert (result.text, result.finish_reason) == ("ab", "stop")
    assert TOKENIZER.decode(result.ids) == "abcd"
    assert result.stats.tokens == len(result.ids) == 4


def test_a_stop_string_that_is_a_special_token_stops() -> None:
    request = context()
    answer = Answer(request, TOKENIZER, stop=("<user>",), logprobs=LogprobOptions())
    logits = torch.zeros(5, VOCABULARY)
    pieces = [*answer.take(round_of("ab<user>cd", 4, request, logits)), answer.end()]
    result = pieces[-1].result
    assert result is not None
    assert (result.text, result.finish_reason) == ("ab", "stop")
    assert TOKENIZER.decode(result.ids) == "ab<user>"
    assert result.logprobs is not None
    assert [entry.token for entry in result.logprobs] == list(result.ids)


def test_a_stop_string_spans_special_tokens_and_text() -> None:
    request = context()
    answer = Answer(request, TOKENIZER, stop=("b<assistant>c", "never"))
    pieces = [*answer.take(round_of("ab<assistant>cd", 4, request)), answer.end()]
    assert "".join(piece.text for piece in pieces) == "a"
    assert answer.stopped()


def test_text_held_back_for_a_stop_string_comes_at_the_end() -> None:
    request = context(max_new_tokens=3)
    answer = Answer(request, TOKENIZER, stop=("cde",))
    pieces = [*answer.take(round_of("bcd", 2, request)), answer.end()]
    assert [piece.text for piece in pieces] == ["b", "", "", "cd"]
    assert pieces[-1].result is not None
    assert pieces[-1].result.text == "bcd"
    assert pieces[-1].result.finish_reason == "length"


def test_a_character_cut_by_the_limit_comes_broken_at_the_end() -> None:
    request = context(max_new_tokens=3)
    answer = Answer(request, TOKENIZER)
    pieces = [*answer.take(round_of("a€", 0, request)), answer.end()]
    assert "".join(piece.text for piece in pieces) == TOKENIZER.decode(request.ids[2:])


def test_without_a_tokenizer_there_is_no_text() -> None:
    request = context()
    answer = Answer(request, None)
    list(answer.take(round_of("ab", 1, request)))
    result = answer.end().result
    assert result is not None
    assert result.text is None
    assert len(result.ids) == 2


def test_logprobs_belong_to_their_tokens_and_end_with_the_stop_string() -> None:
    request = context()
    answer = Answer(request, TOKENIZER, stop=("b",), logprobs=LogprobOptions(top=2))
    logits = torch.randn(3, VOCABULARY, generator=torch.Generator().manual_seed(0))
    list(answer.take(round_of("abc", 2, request, logits)))
    result = answer.end().result
    assert result is not None
    assert result.logprobs is not None
    assert [entry.token for entry in result.logprobs] == list(result.ids)
    values = logits.log_softmax(-1)
    for row, entry in zip(values, result.logprobs, strict=False):
        assert entry.logprob == pytest.approx(float(row[entry.token]), abs=1e-5)
        assert [token for token, _ in entry.top] == row.topk(2).indices.tolist()


def test_processed_logprobs_see_each_tokens_own_prefix() -> None:
    request = context(sampling=Sampling(repetition_penalty=2.0))
    answer = Answer(request, TOKENIZER, logprobs=LogprobOptions(processed=True))
    logits = torch.ones(2, VOCABULARY)
    list(answer.take(round_of("aa", 1, request, logits)))
    result = answer.end().result
    assert result is not None
    assert result.logprobs is not None
    fresh, repeated = (entry.logprob for entry in result.logprobs)
    assert fresh - repeated == pytest.approx(0.5, abs=0.01)


def test_alternatives_that_filters_leave_no_chance_are_not_told() -> None:
    request = context(sampling=Sampling(temperature=1.0, top_k=2))
    answer = Answer(request, TOKENIZER, logprobs=LogprobOptions(top=5, processed=True))
    logits = torch.randn(1, VOCABULARY, generator=torch.Generator().manual_seed(1))
    logits[0, TOKENIZER("a").input_ids[0]] = 9.0
    list(answer.take(round_of("a", 0, request, logits)))
    result = answer.end().result
    assert result is not None
    assert result.logprobs is not None
    assert [token for token, _ in result.logprobs[0].top] == logits[0].topk(2).indices.tolist()


def test_no_logprobs_unless_asked_for() -> None:
    request = context()
    answer = Answer(request, TOKENIZER)
    list(answer.take(round_of("a", 0, request)))
    result = answer.end().result
    assert result is not None
    assert result.logprobs is None
