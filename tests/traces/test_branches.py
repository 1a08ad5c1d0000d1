"""Branched drafts in a trace: which nodes the answer follows, and that a file gives back what was written."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from forerun.core.identity import Identity, Pair
from forerun.core.values import Signals
from forerun.traces.branches import Branches, Level, as_dict, branches_of, from_dict
from forerun.traces.read import TracedAnswer, TraceHeader, answer_as_dict, answer_of, position_of, read_trace

HEADER = TraceHeader(
    "tiny", Pair(Identity("llama", 4, 32, 97, "0" * 16), "drafter"), "tree", {}, 2, 2, 64, False, 1, None, {}
)
SIGNALS = Signals(0.5, 0.5, 1.25, (0.5, 0.25))
# 5 and 6 after the pending token, 7 after 5, 7 and 8 after 6
LEVELS = (
    Level((5, 6), (-1, -1), SIGNALS, (1,)),
    Level((7, 7, 8), (0, 1, 1), None, (2,), merged=1, saved=1),
)
FIRST, SECOND = position_of((5, 7), (None, None), (5, 6)), position_of((6,), (None,), (6,))
ANSWER = TracedAnswer("first", "qa", (1, 2, 3), (4, 5, 6), 64, (FIRST, SECOND))


def written(file: Path, answer: TracedAnswer) -> Path:
    file.write_text("".join(json.dumps(line) + "\n" for line in (HEADER.as_dict(), answer_as_dict(answer))))
    return file


@pytest.mark.parametrize(
    ("follow", "path"),
    [((5, 7, 9), (0, 2)), ((6, 7), (1, 3)), ((6, 8, 8), (1, 4)), ((6, 9), (1,)), ((5,), (0,)), ((8,), ()), ((), ())],
)
def test_the_path_is_that_of_the_answer(follow: tuple[int, ...], path: tuple[int, ...]) -> None:
    assert branches_of(LEVELS, (), follow).path == path


def test_a_level_after_which_nothing_came_ends_the_path() -> None:
    assert branches_of(LEVELS[:1], (3,), (5, 7)) == Branches(LEVELS[:1], (0,), (3,))
    assert branches_of((), (1,), (5, 7)).path == ()


def test_what_was_written_is_read() -> None:
    branches = branches_of(LEVELS, (3, 1), (6, 7))

    assert from_dict(json.loads(json.dumps(as_dict(branches))), (6, 7)) == branches


def test_numbers_are_kept_to_seven_digits() -> None:
    level = replace(LEVELS[0], signals=Signals(1 / 3, 1 / 3, 1.0, (1 / 3,)))
    read = from_dict(json.loads(json.dumps(as_dict(branches_of((level,), (), ())))), ()).levels[0].signals

    assert read is not None
    assert 0 < abs(read.confidence - 1 / 3) < 1e-7


def test_an_answer_holds_trees_beside_its_chains(tmp_path: Path) -> None:
    branches = branches_of(LEVELS, (), (5, 6))
    both = replace(ANSWER, positions=(replace(FIRST, branches=branches), SECOND))
    read = answer_of(json.loads(json.dumps(answer_as_dict(both))), None)

    assert [one.branches for one in read.positions] == [branches, None]
    assert [(one.drafted, one.agreed) for one in read.positions] == [((5, 7), 1), ((6,), 1)]
    assert read_trace(written(tmp_path / "both.jsonl", both)).branched
    assert not read_trace(written(tmp_path / "chains.jsonl", ANSWER)).branched


def test_a_tree_that_lacks_a_part_is_named_with_its_line(tmp_path: Path) -> None:
    both = replace(ANSWER, positions=(replace(FIRST, branches=branches_of(LEVELS, (), ())), SECOND))
    file = written(tmp_path / "t.jsonl", both)
    file.write_text(file.read_text().replace('"left"', '"right"'))

    with pytest.raises(ValueError, match="line 2 is no answer of a trace"):
        read_trace(file)
