"""Training sees what drafting will see, and what it counts as right is what verification accepts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from forerun import Engine, load
from forerun.core.chance import Seeded
from forerun.core.drive import drive
from forerun.core.values import Context
from forerun.drafters import chain, exit_adapter
from forerun.drafters.chain import next_step
from forerun.models.files.adapter import write_adapter
from forerun.models.lean.adapter_runner import AdapterRunner
from forerun.models.lean.runner import LeanRunner
from forerun.models.packed.pool import SequencePool
from forerun.models.packed.runner import HFRunner
from forerun.models.packed.sequence import Sequence
from forerun.testing import VOCABULARY, tiny_model
from forerun.train.data.examples import Example
from forerun.train.distil.adapter_block import ExitAdapter
from forerun.train.distil.data import DistilBatch, DistilData
from forerun.train.distil.loss import Chosen, chain_hits, distil_loss, target_rows
from forerun.train.distil.recipe import DistilRecipe

from ..adapting import (
    KINDS,
    LAYERS,
    adapter_of,
    answered,
    base,
    everything,
    exact,
    file_of,
    frozen,
    run,
    shape,
    store_of,
    student,
    training,
)

DEEP = 3
RUNNERS: dict[str, Any] = {"hf": lambda: HFRunner(base()), "lean": lambda: LeanRunner.from_model(tiny_model("llama"))}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, DistilData]]:
    """By the exit layer."""
    store = store_of(tmp_path_factory.mktemp("states"), answered())
    yield {layer: DistilData(answered(), [store], layer, LAYERS) for layer in (2, LAYERS)}
    store.close()


def one_batch(data: DistilData) -> DistilBatch:
    (batch,) = data.batches(10_000)
    return exact(batch, data.examples, data.exit_layer)


def random_adapter(inputs: str, exit_layer: int, depth: int = 1) -> ExitAdapter:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        adapter = ExitAdapter(shape(inputs, exit_layer, depth))
        for parameter in adapter.parameters():
            torch.nn.init.normal_(parameter, mean=float(parameter.ndim == 1), std=0.2)
    return adapter


def drafted_rows(
    runner: Any, adapter: ExitAdapter, ids: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> dict[tuple[int, int], Tensor]:
    """(token that is foretold, place in its draft) -> what the head read, where drafts happen to be what the text says."""

    def told(rows: Any, context: Context, drafted: list[int]) -> Any:
        step = next_step(rows, context, drafted)
        return replace(step, tokens=(ids[len(context.ids) + len(drafted)],))

    monkeypatch.setattr(chain, "next_step", told)
    pool = SequencePool(AdapterRunner(file_of(adapter), runner), drafting=True)
    target = Sequence(runner)
    drafter = exit_adapter.KINDS[adapter.shape.inputs](target, pool, adapter.shape.exit_layer)
    rows: dict[tuple[int, int], Tensor] = {}
    for length in range(2, len(ids)):
        run(target.sync(list(ids[: length - 1]), drafter.taps))
        # nothing ahead: each token is asked for
        steps = drafter.draft(Context(list(ids[:length]), Seeded(0), ahead=lambda: 0))
        places = range(min(DEEP, len(ids) - length))
        for place, step in zip(places, drive(steps), strict=False):
            assert step.hidden is not None
            rows[length + place, place] = step.hidden[0].clone()
    drafter.close()
    return rows


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize(("inputs", "exit_layer"), KINDS)
def test_what_training_sees_is_what_drafting_sees(
    data: dict[int, DistilData],
    inputs: str,
    exit_layer: int,
    runner: str,
    depth: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    adapter = random_adapter(inputs, exit_layer, depth)
    batch = one_batch(data[exit_layer])
    with torch.no_grad():
        outs = student(adapter).passes(batch, DEEP)
    # with inputs "state" each row reads a true state, whatever its place; else row i foretells token i + 2
    ahead = 1 if inputs == "state" else 2
    assert len(outs) == (1 if inputs == "state" else DEEP)
    for number in (0, len(answered()) - 1):
        ids = tuple(batch.ids[number].tolist())
        text = next(one.ids for one in answered() if ids[: len(one.ids)] == one.ids)
        drafted = drafted_rows(RUNNERS[runner](), adapter, text, monkeypatch)
        assert len(drafted) > 2 * len(text)
        for (token, place), row in drafted.items():
            seen = outs[min(place, len(outs) - 1)][number, token - ahead]
            torch.testing.assert_close(row, seen, atol=1e-4, rtol=1e-4)


def test_passes_that_did_not_draw_on_own_states_would_be_noticed(data: dict[int, DistilData]) -> None:
    adapter = random_adapter("state+token", LAYERS)
    with torch.no_grad():
        outs = student(adapter).passes(one_batch(data[LAYERS]), DEEP)
    rows = [out[0, 4:8] for out in outs]
    assert (rows[0] - rows[1]).abs().max() > 1e-2
    assert (rows[1] - rows[2]).abs().max() > 1e-2


@pytest.mark.parametrize(("inputs", "exit_layer"), KINDS)
def test_the_rows_stand_for_the_tokens_that_they_foretell(
    data: dict[int, DistilData], inputs: str, exit_layer: int
) -> None:
    batch = one_batch(data[exit_layer])
    outs = [torch.zeros(len(batch.ids), batch.last.shape[1] - (inputs != "state"), 1)]
    last, learnt = target_rows(outs, batch)
    best = frozen().best_tokens(frozen().head_rows(last[learnt]))
    foretold = batch.ids[:, -outs[0].shape[1] :][learnt]
    assert torch.equal(best, foretold)
    assert int(learnt.sum()) == sum(len(one.ids) - max(one.start, 1 + (inputs != "state")) for one in answered())


def by_hand(outs: list[Tensor], batch: DistilBatch, fade: float) -> tuple[float, list[float]]:
    last, learnt = target_rows(outs, batch)
    each: list[float] = []
    for number, out in enumerate(outs):
        found: list[float] = []
        for text, row in learnt.nonzero().tolist():
            if row >= number:
                p = F.linear(base().model.norm(last[text, row]), frozen().head).softmax(-1)
                q = F.linear(out[text, row], frozen().head).softmax(-1)
                found.append(float((p * (p / q).log()).sum()))
        each.append(sum(found) / len(found))
    weights = [fade**number for number in range(len(outs))]
    return sum(w * one for w, one in zip(weights, each, strict=True)) / sum(weights), each


@pytest.mark.parametrize(("inputs", "exit_layer"), KINDS)
def test_the_loss_is_the_faded_mean_of_each_passs_divergence(
    data: dict[int, DistilData], inputs: str, exit_layer: int
) -> None:
    batch = one_batch(data[exit_layer])
    with torch.no_grad():
        outs = student(random_adapter(inputs, exit_layer)).passes(batch, 2)
        loss, each = distil_loss(outs, everything().head, batch, frozen(), everything(), 0.5)
        expected, parts = by_hand(outs, batch, 0.5)
    assert float(loss) == pytest.approx(expected, rel=1e-4)
    assert [float(one) for one in each] == pytest.approx(parts, rel=1e-4)


def test_the_loss_is_none_where_the_adapter_says_what_the_target_says(data: dict[int, DistilData]) -> None:
    batch = one_batch(data[2])
    outs = [frozen().head_rows(batch.last)]
    loss, _ = distil_loss(outs, everything().head, batch, frozen(), everything(), 0.5)
    assert float(loss) == pytest.approx(0, abs=1e-5)
    (hits,) = chain_hits(outs, everything().head, batch, frozen(), everything())
    assert hits[0] == hits[1] > 0


def test_texts_too_short_for_a_second_drafted_token_do_not_spoil_the_loss(
    tmp_path: Path, data: dict[int, DistilData]
) -> None:
    for ids in ((5, 6), (5, 6, 7)):
        texts = [Example(ids, 1)]
        store = store_of(tmp_path / str(len(ids)), texts)
        batch = next(DistilData(texts, [store], LAYERS, LAYERS).batches(100))
        store.close()
        adapter = random_adapter("state+token", LAYERS)
        outs = student(adapter).passes(batch, 3)
        loss, each = distil_loss(outs, everything().head, batch, frozen(), everything(), 0.5)
        loss.backward()
        assert loss.isfinite()
        assert [float(one) for one in each[1:]] == [0, 0]
        assert all(parameter.grad is None or parameter.grad.isfinite().all() for parameter in adapter.parameters())


@pytest.fixture(scope="module")
def skilled(data: dict[int, DistilData]) -> dict[tuple[str, int], ExitAdapter]:
    """Adapters that have learnt these texts a little."""
    made: dict[tuple[str, int], ExitAdapter] = {}
    recipe = DistilRecipe(epochs=20, passes=3, rows=80, learning_rate=5e-3, warmup=5, vocabulary=VOCABULARY)
    for inputs, layer in KINDS:
        learning = training(data[layer], inputs, recipe)
        assert all(now.step > 0 for now in learning.run())
        made[inputs, layer] = adapter_of(learning)
    return made


def accepted(engine: Engine, ids: tuple[int, ...], length: int) -> int:
    """How many tokens of the draft after the first `length` of ids are accepted."""
    context = Context(list(ids[: length - 1]), Seeded(0), max_new_tokens=DEEP + 2)
    rounds = drive(engine.rounds(context))
    prefill, round = next(rounds), next(rounds)
    rounds.close()
    assert prefill.tokens == ids[length - 1 : length]
    return len(round.verdict.path)


@pytest.mark.parametrize(("inputs", "exit_layer"), KINDS)
def test_chain_hits_are_what_decoding_accepts(
    data: dict[int, DistilData],
    skilled: dict[tuple[str, int], ExitAdapter],
    inputs: str,
    exit_layer: int,
    tmp_path: Path,
) -> None:
    adapter = skilled[inputs, exit_layer]
    # a draft begins after the token of the prefill at the earliest
    texts = [replace(one, start=one.start + 1) for one in answered()]
    batch = one_batch(replace(data[exit_layer], examples=texts))
    with torch.no_grad():
        outs = student(adapter).passes(batch, DEEP)
        hits = chain_hits(outs * (DEEP // len(outs)), everything().head, batch, frozen(), everything())
    write_adapter(file_of(adapter), tmp_path / "adapter")
    engine = load(
        base(),
        drafter="exit_adapter",
        drafter_options={"adapter": str(tmp_path / "adapter")},
        policy_options={"k": DEEP},
    )
    tried, right = [0] * DEEP, [0] * DEEP
    for text in texts:
        for length in range(text.start, len(text.ids)):
            found = accepted(engine, text.ids, length)
            for place in range(min(found + 1, DEEP, len(text.ids) - length)):
                tried[place] += 1
                right[place] += found > place
    assert hits == list(zip(tried, right, strict=True))
    assert all(right)
    assert right[0] < tried[0]


def test_a_restricted_vocabulary_can_not_be_right_outside_of_itself(data: dict[int, DistilData]) -> None:
    batch = one_batch(data[2])
    outs = [frozen().head_rows(batch.last)]
    answers = {token for one in answered() for token in one.ids[one.start :]}
    held = torch.tensor(sorted(answers)[: len(answers) // 2])
    chosen = Chosen(held, frozen().head[held])
    ((tried, right),) = chain_hits(outs, chosen.head, batch, frozen(), chosen)
    expected = sum(int(token) in set(held.tolist()) for one in answered() for token in one.ids[one.start :])
    assert (tried, right) == (sum(len(one.ids) - one.start for one in answered()), expected)
