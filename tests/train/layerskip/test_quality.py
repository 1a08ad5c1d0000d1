from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import forerun
from forerun.engine.answer import Result
from forerun.engine.stats import Stats
from forerun.testing import VOCABULARY, tiny_model
from forerun.train.data.examples import Example
from forerun.train.layerskip import quality
from forerun.train.layerskip.quality import Answers, ExitQuality, Quality, exact_answers, exit_qualities, num_batches


def examples(count: int = 11) -> list[Example]:
    """Of lengths 6 to 16, learnt from token 2 to 5 on."""
    generator = torch.Generator().manual_seed(3)
    ids = [torch.randint(VOCABULARY, (6 + index,), generator=generator).tolist() for index in range(count)]
    return [Example(tuple(one), 2 + index % 4) for index, one in enumerate(ids)]


def by_hand(model: Any, given: list[Example]) -> list[tuple[float, float, float]]:
    """Loss, agreement and accuracy of each exit: one text at a time, norm and head put on transformers' hidden states."""
    logits: list[list[torch.Tensor]] = []
    targets: list[int] = []
    with torch.inference_mode():
        for one in given:
            out = model(torch.tensor([one.ids]), output_hidden_states=True)
            rows = slice(one.start - 1, len(one.ids) - 1)
            # the last of transformers' hidden states has passed the norm already
            early = [model.lm_head(model.model.norm(state[0, rows])) for state in out.hidden_states[1:-1]]
            logits.append([*early, out.logits[0, rows]])
            targets += one.ids[one.start :]
    wanted = torch.tensor(targets)
    exits = [torch.cat(rows) for rows in zip(*logits, strict=True)]
    best = exits[-1].argmax(-1)
    return [
        (
            float(F.cross_entropy(rows, wanted)),
            float((rows.argmax(-1) == best).float().mean()),
            float((rows.argmax(-1) == wanted).float().mean()),
        )
        for rows in exits
    ]


def test_every_exit_has_the_loss_and_agreement_that_norm_and_head_give_its_states() -> None:
    model = tiny_model("llama")
    found = exit_qualities(model, examples())

    assert [one.exit_layer for one in found] == [1, 2, 3, 4]
    for one, (loss, agreement, accuracy) in zip(found, by_hand(model, examples()), strict=True):
        assert one.loss == pytest.approx(loss, rel=1e-4)
        assert one.agreement == pytest.approx(agreement, abs=1e-6)
        assert one.accuracy == pytest.approx(accuracy, abs=1e-6)
    assert found[-1].agreement == 1
    assert found[0].agreement < 1


@pytest.mark.parametrize("family", ["gemma2", "granite", "opt", "gpt2", "gpt_neox"])
def test_the_tail_is_the_models_own_with_its_scaling_and_caps(family: str) -> None:
    model = tiny_model(family)
    losses: list[torch.Tensor] = []
    with torch.inference_mode():
        for one in examples(5):
            logits = model(torch.tensor([one.ids])).logits[0, one.start - 1 : -1]
            losses.append(F.cross_entropy(logits.float(), torch.tensor(one.ids[one.start :]), reduction="none"))

    assert exit_qualities(model, examples(5))[-1].loss == pytest.approx(float(torch.cat(losses).mean()), rel=1e-4)


def test_chunks_and_batches_do_not_change_what_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model("llama")
    whole = exit_qualities(model, examples())
    monkeypatch.setattr(quality, "CHUNK", 3)
    monkeypatch.setattr(quality, "BATCH", 2)

    for one, other in zip(exit_qualities(model, examples()), whole, strict=True):
        assert one.loss == pytest.approx(other.loss, rel=1e-5)
        assert one.agreement == pytest.approx(other.agreement)


def test_prompts_are_not_counted() -> None:
    model = tiny_model("llama")
    one = examples()[-1]
    all_but_first, last = (exit_qualities(model, [Example(one.ids, start)])[-1].loss for start in (1, len(one.ids) - 1))

    assert all_but_first != pytest.approx(last)
    assert last == pytest.approx(by_hand(model, [Example(one.ids, len(one.ids) - 1)])[-1][0], rel=1e-4)


def test_the_model_is_left_as_it_was_even_when_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model("llama").train()
    forwards = [vars(layer).get("forward") for layer in model.model.layers]
    exit_qualities(model, examples(2))
    monkeypatch.setattr(quality, "_sums", lambda *given: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        exit_qualities(model, examples(2))

    assert model.training
    assert [vars(layer).get("forward") for layer in model.model.layers] == forwards


def test_every_batch_ticks_once() -> None:
    ticks: list[int] = []
    exit_qualities(tiny_model("llama"), examples(), lambda: ticks.append(1))

    assert len(ticks) == num_batches(examples()) == 2


def answered(engine: forerun.Engine, prompt: tuple[int, ...], count: int) -> Example:
    """An example whose answer is the model's own."""
    return Example((*prompt, *engine.generate(list(prompt), max_new_tokens=count).ids), len(prompt))


@pytest.fixture(scope="module")
def engine() -> forerun.Engine:
    return forerun.load(tiny_model("llama"))


def test_an_answer_is_exact_if_every_token_is_the_datas(engine: forerun.Engine) -> None:
    right = [answered(engine, (5, 6, 7), 6), answered(engine, (8, 9), 4)]
    ids = right[0].ids
    wrong_at_the_end = Example((*ids[:-1], (ids[-1] + 1) % VOCABULARY), 3)
    ticks: list[int] = []

    found = exact_answers(engine, [*right, wrong_at_the_end], 6, lambda: ticks.append(1))
    assert found == Answers(exact=2, asked=3, left_out=0)
    assert found.share == pytest.approx(2 / 3)
    assert len(ticks) == 3


def test_answers_that_are_too_long_are_left_out_and_counted(engine: forerun.Engine) -> None:
    given = [answered(engine, (5, 6, 7), 6), answered(engine, (8, 9), 4)]

    assert exact_answers(engine, given, 5) == Answers(1, 1, 1)
    assert exact_answers(engine, given, 3) == Answers(0, 0, 2)
    assert exact_answers(engine, given, 3).share is None


def test_answers_are_plain_and_no_longer_than_the_datas(
    engine: forerun.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[list[int], Mapping[str, Any]]] = []

    def each(requests: list[tuple[list[int], Mapping[str, Any]]]) -> Iterator[tuple[int, Result]]:
        asked.extend(requests)
        for index in range(len(requests)):
            yield index, Result(None, (), None, Stats(), "length", 1)

    monkeypatch.setattr(engine, "each", each)
    assert exact_answers(engine, [Example((1, 2, 3, 4, 5), 2)], 9).exact == 0
    assert asked == [([1, 2], {"max_new_tokens": 3, "speculate": False})]


def test_perplexity_is_that_of_the_whole_model() -> None:
    found = Quality("m", (ExitQuality(1, 9.0, 0.1, 0.0), ExitQuality(2, 2.0, 1.0, 0.5)), Answers(1, 4, 0))

    assert found.perplexity == pytest.approx(math.exp(2))
    told = found.as_dict()
    assert told["exits"][0] == {"exit_layer": 1, "loss": 9.0, "agreement": 0.1, "accuracy": 0.0}
    assert (told["model"], told["answers"]["share"]) == ("m", 0.25)


def test_a_loss_beyond_all_bounds_has_an_infinite_perplexity() -> None:
    assert Quality("m", (ExitQuality(1, 1e4, 1.0, 0.0),), Answers(0, 0, 0)).perplexity == math.inf
