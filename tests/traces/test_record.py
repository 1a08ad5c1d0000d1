"""Traces hold what a drafter would draft at the beginning of a round, everywhere."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
import torch

import forerun
from forerun.core.drafter import Drafter
from forerun.core.values import Context, Step
from forerun.policies.base import signals_of
from forerun.testing import save_tiny, tiny_model
from forerun.traces.read import read_trace
from forerun.traces.record import read_prompts, trace

from ..tune.traced import NEW, PROMPTS, asked, engine_with, header_of, model, traced
from ..tune.trees import WIDE, branching, chain_of


@pytest.fixture(scope="module")
def engine() -> forerun.Engine:
    return engine_with("self")


def first_layers(count: int) -> Any:
    """What the exit drafts with, as a model of its own."""
    whole = model()
    whole.model.layers = whole.model.layers[:count]
    whole.config.num_hidden_layers = count
    return whole


def drafts_of(file: Path) -> dict[str, list[tuple[int, ...]]]:
    return {one.name: [place.drafted for place in one.positions] for one in read_trace(file).answers}


def test_answers_are_those_of_plain_decoding(engine: forerun.Engine, tmp_path: Path) -> None:
    made = traced(engine, tmp_path / "t.jsonl")
    by_prompt = {one.prompt: one for one in made.answers}

    assert set(by_prompt) == set(PROMPTS)
    for prompt in PROMPTS:
        plain = engine.generate(list(prompt), max_new_tokens=NEW, speculate=False)
        assert by_prompt[prompt].tokens == plain.ids
        assert by_prompt[prompt].room == NEW


def test_at_every_position_the_draft_is_what_the_drafter_writes_after_the_text(
    engine: forerun.Engine, tmp_path: Path
) -> None:
    made = traced(engine, tmp_path / "t.jsonl")
    exit_model = first_layers(3)
    alone = forerun.load(exit_model)
    answer = made.answers[0]
    for known, position in enumerate(answer.positions, start=1):
        expected = alone.generate([*answer.prompt, *answer.tokens[:known]], max_new_tokens=6).ids
        assert position.drafted == expected[: NEW - known - 1]
        follow = answer.tokens[known:]
        assert position.drafted[: position.agreed] == follow[: position.agreed]


def test_signals_are_of_the_rows_that_the_drafter_read(engine: forerun.Engine, tmp_path: Path) -> None:
    answer = traced(engine, tmp_path / "t.jsonl").answers[0]
    exit_model = first_layers(3)
    text = [*answer.prompt, *answer.tokens[:2]]
    with torch.no_grad():
        logits = exit_model(torch.tensor([text])).logits[0, -1:]
    expected = signals_of(Step((answer.positions[1].drafted[0],), (-1,), (None,), logits), 3)
    found = answer.positions[1].signals[0]

    assert found is not None
    assert expected is not None
    assert len(found.top) == 3
    assert (found.confidence, found.entropy) == pytest.approx((expected.confidence, expected.entropy), rel=1e-4)
    assert found.top == pytest.approx(expected.top, rel=1e-4)


def test_lookup_has_no_signals_and_may_find_nothing(tmp_path: Path) -> None:
    positions = [
        position
        for answer in traced(engine_with("lookup"), tmp_path / "t.jsonl", "lookup").answers
        for position in answer.positions
    ]

    assert all(signals is None for position in positions for signals in position.signals)
    assert any(not position.drafted for position in positions[:10])
    assert any(len(position.drafted) > 1 for position in positions)


def test_a_batch_writes_the_same_as_one_after_the_other(tmp_path: Path) -> None:
    engine = engine_with("draft_model")
    for name, size in (("one", 1), ("four", 4)):
        list(trace(engine, header_of(engine), tmp_path / name, asked(), max_batch=size))

    assert drafts_of(tmp_path / "one") == drafts_of(tmp_path / "four")


def test_a_killed_run_goes_on_after_the_last_whole_answer(engine: forerun.Engine, tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole.jsonl", tmp_path / "cut.jsonl"
    traced(engine, whole)
    lines = whole.read_bytes().splitlines(keepends=True)
    cut.write_bytes(b"".join(lines[:3]) + lines[3][:50])
    steps = list(trace(engine, header_of(engine), cut, asked()))

    assert steps == [(2, 4), (3, 4), (4, 4)]
    assert drafts_of(cut) == drafts_of(whole)


@pytest.mark.parametrize(
    ("changes", "differing"),
    [
        ({"depth": 5}, "depth"),
        ({"max_new_tokens": 9}, "max_new_tokens"),
        ({"drafter_options": {"exit_layer": 2}}, "drafter"),
    ],
)
def test_a_trace_of_something_else_is_not_added_to(
    engine: forerun.Engine, tmp_path: Path, changes: dict[str, object], differing: str
) -> None:
    traced(engine, tmp_path / "t.jsonl")
    with pytest.raises(ValueError, match=rf"holds a trace that differs in .*{differing}.*; write to another file"):
        next(trace(engine, header_of(engine, **changes), tmp_path / "t.jsonl", asked()))


def test_another_models_trace_is_not_added_to(engine: forerun.Engine, tmp_path: Path) -> None:
    traced(engine, tmp_path / "t.jsonl")
    other = engine_with("self", tiny_model("llama", seed=1))
    with pytest.raises(ValueError, match="differs in pair"):
        next(trace(other, header_of(other), tmp_path / "t.jsonl", asked()))


def test_other_circumstances_are_no_difference(engine: forerun.Engine, tmp_path: Path) -> None:
    traced(engine, tmp_path / "t.jsonl", about={"threads": 1})
    header = header_of(engine, about={"threads": 2})

    assert list(trace(engine, header, tmp_path / "t.jsonl", asked())) == [(4, 4)]
    assert read_trace(tmp_path / "t.jsonl").header.about == {"threads": 1}


def test_hidden_states_are_those_of_the_steps(engine: forerun.Engine, tmp_path: Path) -> None:
    answer = traced(engine, tmp_path / "t.jsonl", hidden=True).answers[0]
    first = answer.positions[0]

    assert first.hidden is not None
    assert first.hidden.shape == (6, 32)
    # the head on a hidden state gives the drafted token
    logits = first.hidden @ model().lm_head.weight.T
    assert tuple(logits.argmax(-1).tolist()) == first.drafted


def test_a_drafter_without_hidden_states_is_refused_where_they_are_asked_for(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no hidden states to keep; trace without --hidden"):
        traced(engine_with("lookup"), tmp_path / "t.jsonl", "lookup", hidden=True)


@pytest.mark.parametrize(("name", "of"), [("tree", "draft_model"), ("tree", "self"), ("graph", "self")])
def test_of_a_drafter_that_branches_the_trees_and_the_chains_are_noted(tmp_path: Path, name: str, of: str) -> None:
    target = model()
    made = traced(branching(name, of, target, **WIDE), tmp_path / "t.jsonl", name)
    chains = traced(chain_of(of, target), tmp_path / "c.jsonl", of)

    assert made.branched
    for answer, alone in zip(made.answers, chains.answers, strict=True):
        assert answer.tokens == alone.tokens
        assert [one.drafted for one in answer.positions] == [one.drafted for one in alone.positions]
        for known, one in enumerate(answer.positions[:-1], start=1):
            assert one.branches is not None
            assert 0 < len(one.branches.levels) <= min(6, NEW - known - 1)
            assert one.branches.levels[0].tokens[0] == one.drafted[0]
        assert answer.positions[-1].branches is None, "there is room for the target's own token alone"


def test_a_level_says_what_its_forwards_had_and_what_came_to_nothing(tmp_path: Path) -> None:
    made = traced(branching(**WIDE), tmp_path / "t.jsonl", "tree")
    drafts = [one.branches for answer in made.answers for one in answer.positions if one.branches is not None]

    for one in drafts:
        before = 1
        for number, level in enumerate(one.levels):
            (rows,) = level.forwards
            assert rows == 1 if number == 0 else 0 < rows <= before
            before = len(level.tokens)
            assert level.signals is not None
        assert all(0 < rows <= before for rows in one.left)
    assert any(one.left for one in drafts)
    assert any(len(one.path) > 1 for one in drafts)


def test_other_drafters_of_trees_are_refused(tmp_path: Path) -> None:
    class Tree(Drafter):
        async def draft(self, context: Context) -> AsyncGenerator[Step]:
            yield Step((1, 2), (-1, -1), (None, None))

    engine = engine_with("self").using(lambda target: Tree())
    with pytest.raises(ValueError, match="traces hold chains, and this drafter drafts 2 tokens in a step"):
        traced(engine, tmp_path / "t.jsonl")


def test_the_inner_drafter_is_closed(tmp_path: Path) -> None:
    closed: list[int] = []

    class Closing(Drafter):
        async def draft(self, context: Context) -> AsyncGenerator[Step]:
            yield Step((1,), (-1,), (None,))

        def close(self) -> None:
            closed.append(1)

    engine = engine_with("self").using(lambda target: Closing())
    header = header_of(engine)
    closed.clear()
    list(trace(engine, header, tmp_path / "t.jsonl", asked()))
    assert len(closed) == len(PROMPTS)


def suite(file: Path) -> Path:
    lines = [{"category": "qa", "prompt": "x" * length} for length in (3, 9, 3, 30, 5)]
    lines += [{"category": "rag", "prompt": "y" * length} for length in (4, 6)]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def test_prompts_are_taken_by_category_without_long_and_equal_ones(tmp_path: Path) -> None:
    engine = forerun.load(str(save_tiny(tmp_path / "tiny", chat=False)))
    file = suite(tmp_path / "p.jsonl")

    def lengths(per_category: int | None, skip: int) -> list[tuple[str, int]]:
        found = read_prompts(engine, file, per_category=per_category, skip=skip, max_prompt=20, raw=False)
        return [(one.category, len(one.ids)) for one in found]

    assert lengths(None, 0) == [("qa", 3), ("qa", 9), ("qa", 5), ("rag", 4), ("rag", 6)]
    assert lengths(1, 0) == [("qa", 3), ("rag", 4)]
    assert lengths(2, 1) == [("qa", 9), ("qa", 5), ("rag", 6)]
    with pytest.raises(ValueError, match="holds no prompt of at most 20 tokens after the first 3 of a category"):
        lengths(None, 3)
