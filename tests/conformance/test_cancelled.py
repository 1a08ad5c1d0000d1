"""Requests that end in the middle: under every drafter the others get their texts, and nothing of a request stays behind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

import forerun
from forerun import DRAFTERS, Engine
from forerun.core.drive import Batch
from forerun.core.identity import identity_of
from forerun.core.values import Round
from forerun.drafters.corpora.files import build_corpus
from forerun.engine.request import RequestOptions
from forerun.models.files.ngrams import write_ngrams
from forerun.models.packed.pool import SequencePool
from forerun.models.packed.sequence import Sequence as PackedSequence
from forerun.testing import tiny_model
from forerun.train.data.examples import Example
from forerun.train.ngrams.table import build_table

PROMPTS = [[number % 5 + 1, 6, 7, 8, number % 3 + 1, 6, 7] for number in range(8)]
NEW = 24
OPTIONS: dict[str, dict[str, Any]] = {
    "self": {"exit_layer": 2},
    "draft_model": {},
    "corpus": {},
    "guessed": {"of": "self", "exit_layer": 2},
    "hybrid": {"then": "self", "exit_layer": 2},
    "cascade": {"of": "suffix,recycle,self", "exit_layer": 2},
    "tree": {"of": "self", "exit_layer": 2},
    "graph": {"of": "self", "exit_layer": 2},
}
TRAINED = ("exit_adapter",)  # it drafts with its own sequences as draft_model does
NAMES = [name for name in DRAFTERS.names if name not in TRAINED]


@pytest.fixture(scope="module")
def target() -> Any:
    return tiny_model("llama")


@pytest.fixture(scope="module")
def plain(target: Any) -> list[tuple[int, ...]]:
    return [result.ids for result in forerun.load(target, drafter="none").generate(PROMPTS, max_new_tokens=NEW)]


@pytest.fixture(scope="module")
def texts(target: Any, plain: list[tuple[int, ...]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("corpora") / "texts"
    build_corpus([[*prompt, *ids] for prompt, ids in zip(PROMPTS, plain, strict=True)], place, ("", 97))
    answers = [Example((*prompt, *ids), len(prompt)) for prompt, ids in zip(PROMPTS, plain, strict=True)]
    write_ngrams(build_table(answers, identity_of(target, None), held_out=0.5)[0], place.with_name("table"))
    return place


def drafting(target: Any, name: str, texts: Path) -> Engine:
    given = dict(OPTIONS.get(name, {}))
    if name == "corpus":
        given["path"] = str(texts)
    if name == "ngrams":
        given["table"] = str(texts.with_name("table"))
    if name == "draft_model":
        given["model"] = tiny_model("llama", seed=7, num_hidden_layers=1)
    return forerun.load(target, drafter=name, drafter_options=given, policy="fixed", policy_options={"k": 4})


def options(number: int, plain: list[tuple[int, ...]]) -> RequestOptions:
    """Every third request expects a text, so that a prediction is followed too."""
    expected: RequestOptions = {"prediction": list(plain[number])} if number % 3 == 0 else {}
    return {"max_new_tokens": NEW, **expected}


@pytest.mark.parametrize("name", NAMES)
def test_requests_that_are_cancelled_in_a_batch_leave_the_others_their_texts(
    target: Any, plain: list[tuple[int, ...]], texts: Path, name: str
) -> None:
    """Every second request is cancelled after some forward, be it reading, drafting or verifying."""
    engine, chance = drafting(target, name, texts), Random(0)
    for turn in range(2):
        batch: Batch[int, Round] = Batch()
        written: dict[int, list[int]] = {number: [] for number in range(len(PROMPTS))}
        for number, prompt in enumerate(PROMPTS):
            job = engine.prepare(prompt, options(number, plain))
            batch.add(number, job.rounds())
        due = {chance.randrange(1, 9): number for number in range(turn, len(PROMPTS), 2)}
        step = 0
        while len(batch):
            for event in batch.step():
                assert event.error is None
                if event.value is not None:
                    written[event.key] += event.value.tokens
            step += 1
            if (number := due.pop(step, None)) is not None and len(written[number]) < NEW:
                batch.cancel(number)
        whole = [number for number, ids in written.items() if len(ids) == NEW]
        assert {*range(1 - turn, len(PROMPTS), 2)} <= {*whole}
        assert len(whole) < len(PROMPTS)
        assert all(tuple(ids) == plain[number][: len(ids)] for number, ids in written.items())


@pytest.mark.parametrize("name", NAMES)
def test_streams_that_are_closed_give_their_sequences_back(
    monkeypatch: pytest.MonkeyPatch, target: Any, plain: list[tuple[int, ...]], texts: Path, name: str
) -> None:
    engine, held = drafting(target, name, texts), Counter[int]()
    acquire, release = SequencePool.acquire, SequencePool.release

    def acquired(pool: SequencePool, ids: Sequence[int] = ()) -> PackedSequence:
        held[id(pool)] += 1
        return acquire(pool, ids)

    def released(pool: SequencePool, sequence: PackedSequence) -> None:
        held[id(pool)] -= 1
        release(pool, sequence)

    monkeypatch.setattr(SequencePool, "acquire", acquired)
    monkeypatch.setattr(SequencePool, "release", released)
    expected: list[RequestOptions] = [{}, {"prediction": list(plain[0])}]
    for read in (1, 2, 5):
        for given in expected:
            stream = engine.stream(PROMPTS[0], max_new_tokens=NEW, **given)
            for _ in range(read):
                next(stream)
            stream.close()
            assert not any(held.values())
    assert id(engine._pools[0]) in held
    assert engine.generate(PROMPTS[0], max_new_tokens=NEW).ids == plain[0]
