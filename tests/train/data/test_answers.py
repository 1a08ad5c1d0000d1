"""Answers are the model's own; runs go on where they ended; other models' and other options' files are refused."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from forerun import Engine, load
from forerun.testing import tiny_model, tiny_tokenizer
from forerun.train.data.answers import AnswerOptions, answer
from forerun.train.data.examples import read_examples
from forerun.train.data.states import StateStore

OPTIONS = AnswerOptions(max_new_tokens=6)
PROMPTS = ("what is this", "who are you", "say a word", "why", "count to ten")


@pytest.fixture(scope="module")
def engine() -> Engine:
    tokenizer = tiny_tokenizer()
    return load(tiny_model("llama", vocab_size=len(tokenizer)), tokenizer)


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    return written(tmp_path / "prompts.jsonl", PROMPTS)


def written(file: Path, texts: Iterable[str]) -> Path:
    file.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in texts))
    return file


def lines(file: Path) -> dict[str, dict[str, Any]]:
    found = [json.loads(line) for line in file.read_text().splitlines()]
    assert len({one["id"] for one in found}) == len(found)
    return {one["id"]: one for one in found}


def ids_of(file: Path) -> set[tuple[int, ...]]:
    return {tuple(one["answer_ids"]) for one in lines(file).values()}


def test_answers_are_what_the_engine_greedily_says(engine: Engine, prompts: Path, tmp_path: Path) -> None:
    told = list(answer(engine, prompts, tmp_path / "a.jsonl", OPTIONS, max_batch=2))
    assert [done for done, _, _ in told] == list(range(6))
    assert told[-1][1:] == (5, sum(len(one["answer_ids"]) for one in lines(tmp_path / "a.jsonl").values()))
    chats = [[{"role": "user", "content": text}] for text in PROMPTS]
    expected = {result.ids: result.text for result in engine.generate(chats, max_new_tokens=6)}
    assert {tuple(one["answer_ids"]): one["answer"] for one in lines(tmp_path / "a.jsonl").values()} == expected
    examples = read_examples(tmp_path / "a.jsonl", None)
    assert {one.ids[one.start :] for one in examples} == set(expected)


def test_a_killed_run_goes_on_and_ends_as_if_uninterrupted(engine: Engine, prompts: Path, tmp_path: Path) -> None:
    warm = AnswerOptions(max_new_tokens=6, temperature=1.0, top_p=0.9, seed=3)
    assert list(answer(engine, prompts, tmp_path / "whole.jsonl", warm))[-1][0] == 5
    running = answer(engine, prompts, tmp_path / "killed.jsonl", warm, max_batch=2)
    while next(running)[0] < 2:
        pass
    running.close()
    with (tmp_path / "killed.jsonl").open("a") as file:
        file.write('{"id": "half a li')
    rest = list(answer(engine, prompts, tmp_path / "killed.jsonl", warm, max_batch=3))
    assert rest[0] == (2, 5, 0)
    assert rest[-1][0] == 5
    assert lines(tmp_path / "killed.jsonl") == lines(tmp_path / "whole.jsonl")


def test_what_is_answered_already_is_not_asked_again(engine: Engine, prompts: Path, tmp_path: Path) -> None:
    assert list(answer(engine, prompts, tmp_path / "a.jsonl", OPTIONS))[-1][0] == 5
    before = (tmp_path / "a.jsonl").read_text()
    assert list(answer(engine, prompts, tmp_path / "a.jsonl", OPTIONS)) == [(5, 5, 0)]
    assert (tmp_path / "a.jsonl").read_text() == before


def test_the_seed_decides_warm_answers(engine: Engine, prompts: Path, tmp_path: Path) -> None:
    for seed in (1, 2):
        warm = AnswerOptions(max_new_tokens=6, temperature=1.0, seed=seed)
        assert list(answer(engine, prompts, tmp_path / f"{seed}.jsonl", warm))
    assert ids_of(tmp_path / "1.jsonl") != ids_of(tmp_path / "2.jsonl")


def test_equal_prompts_are_asked_once_and_excluded_ones_never(engine: Engine, tmp_path: Path) -> None:
    prompts = written(tmp_path / "prompts.jsonl", ["one", "two", "one", "three"])
    told = list(answer(engine, prompts, tmp_path / "a.jsonl", OPTIONS, exclude={"two"}))
    assert told[-1][:2] == (2, 2)


def test_exclusion_ignores_case_and_white_space_and_looks_at_every_turn(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text(
        '{"prompt": "What IS\\n  this? "}\n{"turns": ["first", "Then  that"]}\n{"prompt": "what is it"}\n'
    )
    unwanted = {" what is this?", "then that\n"}
    told = list(answer(engine, tmp_path / "p.jsonl", tmp_path / "a.jsonl", OPTIONS, exclude=unwanted))
    assert told[-1][:2] == (1, 1)
    (only,) = lines(tmp_path / "a.jsonl").values()
    assert only["prompt_ids"] == tiny_tokenizer()("<user>what is it<end><assistant>").input_ids


def test_of_a_conversation_the_first_turn_is_asked(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "prompts.jsonl").write_text(json.dumps({"turns": ["first", "second"]}) + "\n")
    assert list(answer(engine, tmp_path / "prompts.jsonl", tmp_path / "a.jsonl", OPTIONS))[-1][0] == 1
    (only,) = lines(tmp_path / "a.jsonl").values()
    assert only["prompt_ids"] == tiny_tokenizer()("<user>first<end><assistant>").input_ids


def test_prompts_that_are_too_long_are_left_out(engine: Engine, prompts: Path, tmp_path: Path) -> None:
    short = AnswerOptions(max_new_tokens=2, max_prompt=len("<>why<>"))
    assert list(answer(engine, prompts, tmp_path / "a.jsonl", short))[-1][:2] == (1, 1)
    with pytest.raises(ValueError, match=r"prompts.jsonl holds no prompt of at most 2 tokens that may be used"):
        list(answer(engine, prompts, tmp_path / "b.jsonl", AnswerOptions(max_prompt=2)))


def test_prompts_that_leave_no_room_for_an_answer_are_left_out(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    small = load(tiny_model("llama", vocab_size=len(tokenizer), max_position_embeddings=12), tokenizer)
    prompts = written(tmp_path / "prompts.jsonl", ["a" * letters for letters in (7, 8, 9, 10)])
    store = StateStore(tmp_path / "states", (2, 4), 32, small.identity.weights)
    assert list(answer(small, prompts, tmp_path / "a.jsonl", OPTIONS, states=store))[-1][:2] == (2, 2)
    assert sorted(len(one["answer_ids"]) for one in lines(tmp_path / "a.jsonl").values()) == [1, 2]
    store.close()


def test_a_file_of_other_options_or_another_model_is_refused(engine: Engine, prompts: Path, tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    assert list(answer(engine, prompts, file, OPTIONS))
    before = file.read_text()
    with pytest.raises(ValueError, match=r"a.jsonl, line 1 was made by another model or with other options"):
        list(answer(engine, prompts, file, AnswerOptions(max_new_tokens=7)))
    other = load(tiny_model("llama", seed=1, vocab_size=len(tiny_tokenizer())), tiny_tokenizer())
    with pytest.raises(ValueError, match=r"line 1 was made by another model .*; write to another file"):
        list(answer(other, prompts, file, OPTIONS))
    assert file.read_text() == before


def test_states_come_by_on_the_way(engine: Engine, prompts: Path, tmp_path: Path) -> None:
    store = StateStore(tmp_path / "states", (2, 4), 32, engine.identity.weights)
    assert list(answer(engine, prompts, tmp_path / "a.jsonl", OPTIONS, states=store))
    assert all(one.ids[:-1] in store for one in read_examples(tmp_path / "a.jsonl", None))
    store.close()


@pytest.mark.parametrize("name", ["max_new_tokens", "max_prompt"])
def test_options_out_of_range_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
        AnswerOptions(**{name: 0})


def test_a_checkpoints_generation_config_acts_is_noted_and_can_be_left_out(prompts: Path, tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    model = tiny_model("llama", vocab_size=len(tokenizer))
    bare = load(model, tokenizer)
    list(answer(bare, prompts, tmp_path / "bare.jsonl", OPTIONS))
    model.generation_config.suppress_tokens = list(range(0, 256, 2))
    model.generation_config.typical_p = 0.9
    penalised = load(model, tokenizer)
    drawn = AnswerOptions(max_new_tokens=6, temperature=1.0)
    without = AnswerOptions(max_new_tokens=6, generation_config=False)

    for name, options in (("own", OPTIONS), ("drawn", drawn), ("without", without)):
        list(answer(penalised, prompts, tmp_path / f"{name}.jsonl", options))

    def noted(name: str) -> Any:
        return next(iter(lines(tmp_path / f"{name}.jsonl").values()))["made_by"].get("generation_config")

    assert all(token % 2 for ids in ids_of(tmp_path / "own.jsonl") for token in ids if token < 256)
    assert (noted("own"), noted("drawn")) == (["suppress_tokens"], ["suppress_tokens", "typical_p"])
    assert (tmp_path / "without.jsonl").read_text() == (tmp_path / "bare.jsonl").read_text()


def test_drawn_answers_are_filtered_by_nothing_but_what_the_file_tells(prompts: Path, tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    model = tiny_model("llama", vocab_size=len(tokenizer))
    drawn = AnswerOptions(max_new_tokens=6, temperature=1.0, seed=4)
    list(answer(load(model, tokenizer), prompts, tmp_path / "bare.jsonl", drawn))
    model.generation_config.top_k, model.generation_config.min_p = 1, 0.5
    list(answer(load(model, tokenizer), prompts, tmp_path / "filtered.jsonl", drawn))

    assert ids_of(tmp_path / "filtered.jsonl") == ids_of(tmp_path / "bare.jsonl")
