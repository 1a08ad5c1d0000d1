"""Traces as files: what they hold, and what is wrong with bad ones."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from forerun.core.cost import Cost, Costs, Point
from forerun.core.identity import Identity, Pair
from forerun.core.values import Signals
from forerun.traces.read import (
    TracedAnswer,
    TraceHeader,
    answer_as_dict,
    answer_of,
    hidden_folder,
    position_of,
    read_trace,
)

PAIR = Pair(Identity("llama", 4, 32, 97, "0" * 16, "1" * 16), "2" * 16)
COSTS = Costs((Cost("tiny", "HFRunner", "float32", "full", (Point(1, 8, 2.0, 0.5),)),))
HEADER = TraceHeader(
    "tiny", PAIR, "self", {"exit_layer": 2}, 12, 2, 64, False, 2, COSTS, {"threads": 1, "prompts": {"file": "p"}}
)
SURE, UNSURE = Signals(0.75, 0.75, 0.25, (0.75, 0.125)), Signals(0.1, 0.2, 1.5, (0.2, 0.1))
ANSWER = TracedAnswer(
    "first",
    "qa",
    (1, 2, 3),
    (4, 5, 6),
    64,
    (position_of((5, 7), (SURE, UNSURE), (5, 6)), position_of((6,), (None,), (6,))),
)


def written(file: Path, *answers: TracedAnswer, header: TraceHeader = HEADER) -> Path:
    lines = [header.as_dict(), *map(answer_as_dict, answers)]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def test_what_was_written_is_read(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path / "t.jsonl", ANSWER, replace(ANSWER, name="second")))

    assert trace.header == HEADER
    assert [one.name for one in trace.answers] == ["first", "second"]
    read = trace.answers[0]
    assert (read.prompt, read.tokens, read.room, read.category) == ((1, 2, 3), (4, 5, 6), 64, "qa")
    assert [(one.drafted, one.signals, one.agreed) for one in read.positions] == [
        ((5, 7), (SURE, UNSURE), 1),
        ((6,), (None,), 1),
    ]


@pytest.mark.parametrize(
    ("drafted", "follow", "agreed"),
    [((5, 6), (5, 6, 7), 2), ((5, 6), (5,), 1), ((5, 6), (6, 6), 0), ((), (5,), 0), ((5, 0, 7), (5, 6, 7), 1)],
)
def test_agreement_ends_with_the_first_difference(
    drafted: tuple[int, ...], follow: tuple[int, ...], agreed: int
) -> None:
    assert position_of(drafted, (None,) * len(drafted), follow).agreed == agreed


def test_each_drafted_token_needs_signals() -> None:
    with pytest.raises(ValueError, match="got 2 tokens and 1 signals"):
        position_of((5, 6), (None,), (5, 6))


def test_numbers_are_kept_to_seven_digits() -> None:
    third = Signals(1 / 3, 1 / 3, 2 / 3, (1 / 3,))
    answer = replace(ANSWER, tokens=(4, 5), positions=(position_of((5,), (third,), (5,)),))
    read = answer_of(json.loads(json.dumps(answer_as_dict(answer))), None).positions[0].signals[0]

    assert read is not None
    assert read != third
    assert read.confidence == pytest.approx(1 / 3, rel=1e-7)


def test_hidden_states_lie_beside(tmp_path: Path) -> None:
    file = written(tmp_path / "t.jsonl", ANSWER, header=replace(HEADER, hidden=True))
    hidden_folder(file).mkdir()
    rows = torch.arange(12.0).view(3, 4)
    save_file({"hidden": rows}, hidden_folder(file) / "first.safetensors")
    one, other = read_trace(file).answers[0].positions

    assert one.hidden is not None
    assert other.hidden is not None
    assert torch.equal(torch.cat([one.hidden, other.hidden]), rows)
    assert one.hidden.shape == (2, 4)


def test_hidden_states_that_are_missing_are_named(tmp_path: Path) -> None:
    file = written(tmp_path / "t.jsonl", ANSWER, header=replace(HEADER, hidden=True))

    with pytest.raises(ValueError, match=r"t\.jsonl, line 2 is no answer of a trace .*first\.safetensors"):
        read_trace(file)


def test_a_file_cut_in_the_middle_says_where_and_what_to_do(tmp_path: Path) -> None:
    file = written(tmp_path / "t.jsonl", ANSWER, ANSWER)
    file.write_text(file.read_text()[:-40])

    with pytest.raises(ValueError, match=r"t\.jsonl is cut off in the middle of line 3; run the same forerun trace"):
        read_trace(file)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "is an empty trace; make one with forerun trace"),
        (json.dumps(HEADER.as_dict()) + "\n", "is an empty trace: it holds no answer"),
        ('{"prompt": "a"}\n', "this is no trace: a header is missing"),
        ('{"forerun_trace": 2}\n', "this is a trace of format 2, and this forerun reads 1"),
        ('{"forerun_trace": 1, "model": "tiny"}\n', "the trace's header is broken"),
        (json.dumps(HEADER.as_dict()) + '\n{"oops"}\n', "line 2: not valid JSON"),
        (json.dumps(HEADER.as_dict()) + '\n{"name": "a"}\n', "line 2 is no answer of a trace"),
    ],
)
def test_what_is_no_trace_is_refused_in_one_sentence(tmp_path: Path, content: str, sentence: str) -> None:
    file = tmp_path / "t.jsonl"
    file.write_text(content)

    with pytest.raises(ValueError, match=r"t\.jsonl") as error:
        read_trace(file)
    assert sentence in str(error.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"can't read the trace .*none\.jsonl"):
        read_trace(tmp_path / "none.jsonl")


def test_an_answer_with_too_few_positions_is_refused() -> None:
    with pytest.raises(ValueError, match="an answer of 3 tokens needs 2 positions, got 1"):
        answer_of({**answer_as_dict(ANSWER), "positions": answer_as_dict(ANSWER)["positions"][:1]}, None)


@pytest.mark.parametrize(
    ("pair", "difference"),
    [
        (replace(PAIR, target=replace(PAIR.target, vocabulary="9" * 16)), "vocabulary is 1111"),
        (replace(PAIR, target=replace(PAIR.target, weights="9" * 16)), "weights is 0000"),
        (replace(PAIR, drafter="9" * 16), "drafter is 2222"),
    ],
)
def test_another_tokenizer_model_or_drafter_is_refused(tmp_path: Path, pair: Pair, difference: str) -> None:
    trace = read_trace(written(tmp_path / "t.jsonl", ANSWER))
    trace.check(PAIR)

    with pytest.raises(ValueError, match="traced with another model, tokenizer or drafter") as error:
        trace.check(pair)
    assert difference in str(error.value)


def test_a_whole_last_line_needs_no_end_and_the_file_may_have_been_edited(tmp_path: Path) -> None:
    file = written(tmp_path / "t.jsonl", ANSWER, ANSWER)
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes().replace(b"\n", b"\r\n").rstrip())

    assert len(read_trace(file).answers) == 2
