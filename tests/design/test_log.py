"""The token log: what is read of it, and rounds that are those of real greedy decoding."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import forerun
from forerun.core.drive import drive
from forerun.core.identity import Identity
from forerun.design.log import DraftOnLog, LoggedAnswer, compare_with_log, coverage, read_log, walk
from forerun.engine.engine import Engine
from forerun.testing import tiny_model

TARGET = Identity("llama", 4, 32, 97, "a" * 16)


def written(path: Path, *entries: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries), encoding="utf-8")
    return path


def entry(prompt: Sequence[int] = (1, 2, 3), answer: Sequence[int] = (4, 5, 6), **more: Any) -> dict[str, Any]:
    return {"prompt_ids": list(prompt), "answer_ids": list(answer), **more}


def test_answers_are_read_after_their_prompts(tmp_path: Path) -> None:
    log = read_log(written(tmp_path / "log", entry(), entry((7, 8, 9, 10), (11, 12))), TARGET, 10)
    assert log == [LoggedAnswer((1, 2, 3, 4, 5, 6), 3), LoggedAnswer((7, 8, 9, 10, 11, 12), 4)]
    assert log[0].answer == (4, 5, 6)


def test_a_long_log_is_read_evenly(tmp_path: Path) -> None:
    path = written(tmp_path / "log", *(entry(answer=(number, 1)) for number in range(20)))
    assert [one.answer[0] for one in read_log(path, TARGET, 4)] == [0, 5, 10, 15]


def test_what_tells_nothing_is_left_out(tmp_path: Path) -> None:
    path = written(tmp_path / "log", entry(answer=(4,)), entry(prompt=(1, 2)), entry())
    assert len(read_log(path, TARGET, 10)) == 1


@pytest.mark.parametrize("entries", [(), (entry(answer=()),), (entry(answer=(4,)),)])
def test_a_log_without_answers_is_refused(tmp_path: Path, entries: tuple[dict[str, Any], ...]) -> None:
    with pytest.raises(
        ValueError, match="holds no answer of at least two tokens; write some with: forerun train answers"
    ):
        read_log(written(tmp_path / "log", *entries), TARGET, 10)


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        ({"text": "hello"}, r'line 2: a log has "prompt_ids" and "answer_ids", token ids in 0..96'),
        (entry(answer=(4, 97)), "line 2: a log has"),
        (entry(answer=(4, 1.5)), "line 2: a log has"),
        (entry(made_by={"model": "b" * 16}), "line 2: another model gave this answer"),
        (entry(made_by={"model": "a" * 16, "temperature": 0.7}), "line 2: this answer was sampled at temperature 0.7"),
    ],
)
def test_a_line_that_is_no_greedy_answer_of_the_target_is_named(
    tmp_path: Path, broken: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        read_log(written(tmp_path / "log", entry(), broken), TARGET, 10)


def test_the_targets_own_greedy_answers_pass(tmp_path: Path) -> None:
    path = written(tmp_path / "log", entry(made_by={"model": "a" * 16, "temperature": 0.0, "top_p": 1.0}))
    assert len(read_log(path, TARGET, 10)) == 1


@pytest.mark.parametrize(
    ("right", "k", "emitted"),
    [
        ("1111", 3, [4]),
        ("1101", 3, [3, 1]),
        ("0000", 3, [1, 1, 1, 1]),
        ("1111111", 2, [3, 3, 1]),
        ("10111", 8, [2, 3]),
        ("1", 3, [1]),
        ("", 3, []),
    ],
)
def test_a_round_emits_the_right_tokens_and_one_more(right: str, k: int, emitted: list[int]) -> None:
    assert walk([one == "1" for one in right], k) == emitted


def test_rounds_count_every_answer() -> None:
    on_log = DraftOnLog(((True, True, False), (False,)), None)
    assert on_log.acceptance == 0.5
    assert on_log.rounds(1).shares == (2 / 3, 1 / 3)
    assert on_log.rounds(3).shares == (0.5, 0.0, 0.5, 0.0)


@pytest.fixture(scope="module")
def engine() -> Engine:
    return forerun.load(tiny_model("llama"))


@pytest.mark.parametrize("k", [1, 2, 5])
def test_the_walk_emits_what_decoding_emits(engine: Engine, k: int) -> None:
    """The draft: the target without its last layer, which is right now and then."""
    prompt = [3, 1, 4, 1, 5, 9]
    drafting = engine.using("self", drafter_options={"exit_layer": 3}, policy_options={"k": k})
    result = drafting.generate(prompt, max_new_tokens=60, ignore_eos=True)
    logged = LoggedAnswer((*prompt, *result.ids), len(prompt))
    with drafting.borrow(prompt) as (_, drafter):
        ((right, _),) = drive(compare_with_log(drafter, logged))
    emitted = walk(right, k)
    assert 0 < sum(right) < len(right)
    assert sum(emitted) == result.stats.decoded
    assert len(emitted) == result.stats.rounds


def test_a_draft_that_is_the_target_is_always_right(engine: Engine) -> None:
    prompt = [3, 1, 4, 1, 5, 9]
    answer = engine.generate(prompt, max_new_tokens=20, ignore_eos=True).ids
    drafting = engine.using("draft_model", drafter_options={"model": tiny_model("llama")})
    with drafting.borrow(prompt) as (_, drafter):
        ((right, nats),) = drive(compare_with_log(drafter, LoggedAnswer((*prompt, *answer), len(prompt))))
    assert right == [True] * 19
    assert nats is not None
    assert 0 < nats < 20 * math.log(97)


def test_a_token_that_the_draft_cant_say_leaves_no_perplexity(engine: Engine) -> None:
    drafting = engine.using("draft_model", drafter_options={"model": tiny_model("llama", vocab_size=50)})
    with drafting.borrow(()) as (_, drafter):
        ((right, nats),) = drive(compare_with_log(drafter, LoggedAnswer((1, 2, 3, 4, 5, 6, 49, 3), 5)))
        ((_, none),) = drive(compare_with_log(drafter, LoggedAnswer((1, 2, 3, 4, 5, 6, 7, 96), 5)))
    assert len(right) == 2
    assert nats is not None
    assert none is None


def test_coverage_is_counted_on_other_answers_than_it_was_ranked_on() -> None:
    log = [LoggedAnswer((0, 0, 0, 5, 5, 6), 3), LoggedAnswer((0, 0, 0, 5, 7, 7), 3)]
    assert coverage(log, 97, 97) == 1.0
    assert coverage(log, 2, 97) == pytest.approx(1 / 3)
    assert coverage(log[:1], 1, 97) == pytest.approx(2 / 3)
