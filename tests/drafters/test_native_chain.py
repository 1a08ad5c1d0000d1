"""Drafts whose chains are computed ahead in native code: the steps of one at a time, and texts under every rule."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from forerun import POLICIES, Engine, load
from forerun.core.chance import Seeded
from forerun.core.drafter import Drafter
from forerun.core.drive import drive
from forerun.core.values import Context, DraftCounts, Sampling, Step, UnusedWork
from forerun.drafters.draft_model import ModelDraft
from forerun.drafters.exit_adapter import StateTokenDraft
from forerun.drafters.self_draft import SelfDraft
from forerun.models.lean.adapter_runner import AdapterRunner
from forerun.models.lean.native.library import SWITCH, processor_levels
from forerun.models.lean.runner import LeanRunner
from forerun.models.packed.plan import FULL, LayerPlan
from forerun.models.packed.pool import SequencePool
from forerun.models.packed.sequence import Sequence
from forerun.policies.base import confidence
from forerun.testing import END, save_tiny, save_tiny_adapter, tiny_adapter, tiny_model, tiny_tokenizer

from ..models.running import finish
from .carving import PROMPTS, save_carvable

pytestmark = pytest.mark.skipif(not processor_levels(), reason="forerun was installed without a compiler")
IDS = [5, 6, 7, 8, 5, 6, 7]
Make = Callable[[], Drafter]


@cache
def runner(**changes: Any) -> LeanRunner:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SWITCH, processor_levels()[-1])
        return LeanRunner.from_model(tiny_model("llama", **{"intermediate_size": 64, **changes}), "int4")


@cache
def adapter() -> AdapterRunner:
    model = tiny_model("llama", intermediate_size=64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SWITCH, processor_levels()[-1])
        return AdapterRunner(tiny_adapter(model, 2, "state+token"), runner(), weights="int4")


def draft_model(plan: LayerPlan = FULL, shared: int = 97, **changes: Any) -> ModelDraft:
    own = runner(**changes)
    return ModelDraft(SequencePool(own, drafting=True, plan=plan), shared)


def own_layers(plan: LayerPlan) -> SelfDraft:
    sequence = Sequence(runner())
    finish(sequence.sync(IDS))
    del sequence.ids[-1]  # the last token is pending
    return SelfDraft(sequence, plan)


def with_adapter() -> StateTokenDraft:
    sequence = Sequence(runner())
    finish(sequence.sync(IDS[:-1], frozenset({2})))
    return StateTokenDraft(sequence, SequencePool(adapter(), drafting=True), 2)


MAKE: dict[str, Make] = {
    "draft_model": draft_model,
    "fewer tokens": lambda: draft_model(shared=50),
    "cut head": lambda: draft_model(LayerPlan(head=runner().add_head([3, 5, 9, 40, 41, 80]))),
    "exit": lambda: own_layers(LayerPlan.early_exit(2, 4)),
    "skips": lambda: own_layers(LayerPlan.skip(4, (1, 2), (2,))),
    "coarse": lambda: own_layers(LayerPlan(activations=8)),
    "adapter": with_adapter,
}


def context(ahead: int, sampling: Sampling | None = None) -> Context:
    return Context(list(IDS), Seeded(1), sampling or Sampling(), ahead=lambda: ahead)


def steps(drafter: Drafter, context: Context, number: int) -> list[Step]:
    """The first steps of a draft, which is closed then."""

    async def taken() -> AsyncGenerator[list[Step]]:
        found: list[Step] = []
        async with aclosing(drafter.draft(context)) as source:
            while len(found) < number and (step := await anext(source, None)) is not None:
                found.append(step)
        yield found

    (found,) = drive(taken())
    return found


def rows_of(found: list[Step]) -> torch.Tensor:
    return torch.cat([step.logits for step in found if step.logits is not None])


@pytest.mark.parametrize("ahead", [1, 2, 3, 8])
@pytest.mark.parametrize("kind", MAKE)
def test_steps_computed_ahead_are_those_of_one_at_a_time(kind: str, ahead: int) -> None:
    wanted, found = steps(MAKE[kind](), context(0), 7), steps(MAKE[kind](), context(ahead), 7)
    assert [(step.tokens, step.parents, step.laws) for step in found] == [
        (step.tokens, step.parents, step.laws) for step in wanted
    ]
    assert torch.equal(rows_of(found), rows_of(wanted))
    for one, other in zip(found, wanted, strict=True):
        assert one.counts == DraftCounts(1)
        assert one.forward_seconds > 0
        assert torch.equal(one.hidden, other.hidden)  # type: ignore[arg-type]
        assert confidence(one) == pytest.approx(confidence(other), rel=1e-5)
    assert all(step.share is not None for step in found)
    assert all(step.share is None for step in wanted)


@pytest.mark.parametrize("kind", MAKE)
def test_steps_that_nobody_took_are_counted(kind: str) -> None:
    drafter = MAKE[kind]()
    steps(drafter, context(6), 2)
    assert drafter.unused.counts == DraftCounts(4)
    assert drafter.unused.seconds > 0
    steps(drafter, context(2), 2)
    assert drafter.unused == UnusedWork()


def test_drawn_tokens_and_penalties_are_never_computed_ahead() -> None:
    for sampling in (Sampling(temperature=0.8), Sampling(repetition_penalty=1.2)):
        assert all(step.share is None for step in steps(draft_model(), context(6, sampling), 4))


def test_a_draft_ends_where_its_context_does_however_far_it_looks() -> None:
    drafter = draft_model(max_position_embeddings=9)
    assert (
        len(steps(drafter, context(8), 20)) == len(steps(draft_model(max_position_embeddings=9), context(1), 20)) == 3
    )


def test_a_row_that_is_no_law_ends_the_draft() -> None:
    good = steps(draft_model(), context(1), 3)
    model = tiny_model("llama", intermediate_size=64)
    model.model.embed_tokens.weight.data[good[1].tokens[0]] = torch.nan
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SWITCH, processor_levels()[-1])
        broken = LeanRunner.from_model(model, "")
    one, other = (ModelDraft(SequencePool(broken, drafting=True), 97) for _ in range(2))
    assert len(steps(one, context(1), 9)) == len(steps(other, context(7), 9))
    assert one.unused.counts == other.unused.counts == DraftCounts(1, invalid=1)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SWITCH, processor_levels()[-1])
        return load(save_carvable(tmp_path_factory.mktemp("models") / "target"), drafter="none", weights="int4")


@pytest.fixture(scope="module")
def methods(plain: Engine, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Engine]:
    folder = tmp_path_factory.mktemp("drafts")
    draft = str(save_tiny(folder / "draft", seed=1, intermediate_size=64, num_hidden_layers=2))
    model = tiny_model("llama", vocab_size=len(tiny_tokenizer()), eos_token_id=END, intermediate_size=64)
    states = str(save_tiny_adapter(folder / "adapter", model, 2, "state+token", tokenizer=tiny_tokenizer()))
    options: dict[str, tuple[str, dict[str, Any]]] = {
        "exit": ("self", {"exit_layer": 2, "vocabulary": 200}),
        "draft_model": ("draft_model", {"model": draft, "vocabulary": 100}),
        "adapter": ("exit_adapter", {"adapter": states}),
        "cascade": ("cascade", {"of": "suffix,self", "exit_layer": 2}),
        "hybrid": ("hybrid", {"then": "draft_model", "model": draft}),
        "tree": ("tree", {"of": "self", "exit_layer": 2}),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SWITCH, processor_levels()[-1])
        return {name: plain.using(drafter, drafter_options=own) for name, (drafter, own) in options.items()}


RULES = [name for name in POLICIES.names if name not in ("acceptance_head", "disco")]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("method", ["exit", "draft_model", "adapter", "cascade", "hybrid", "tree"])
def test_texts_are_plain_texts_under_every_rule(
    method: str, rule: str, plain: Engine, methods: dict[str, Engine]
) -> None:
    wanted = [plain.generate(prompt, max_new_tokens=20).ids for prompt in PROMPTS]
    engine = methods[method].using(methods[method].drafter, rule)
    assert [engine.generate(prompt, max_new_tokens=20).ids for prompt in PROMPTS] == wanted
    assert [result.ids for result in engine.generate(list(PROMPTS), max_new_tokens=20)] == wanted


@pytest.mark.parametrize("method", ["exit", "draft_model", "adapter"])
def test_a_fixed_length_is_computed_in_one_call_and_every_forward_counted(
    method: str, plain: Engine, methods: dict[str, Engine]
) -> None:
    engine = methods[method].using(methods[method].drafter, "fixed", policy_options={"k": 4})
    stats = engine.generate(PROMPTS[0], max_new_tokens=24, ignore_eos=True).stats
    assert stats.draft_forwards == stats.drafted > 0


def test_a_rule_that_stops_early_has_its_unused_forwards_counted(methods: dict[str, Engine]) -> None:
    engine = methods["draft_model"].using(
        methods["draft_model"].drafter, "threshold", policy_options={"confidence": 1.0}
    )
    stats = engine.generate(PROMPTS[0], max_new_tokens=24, ignore_eos=True).stats
    assert stats.draft_forwards > stats.drafted
    assert stats.invalid_rows == 0


def test_an_end_of_the_text_within_what_is_computed_ahead_ends_it(plain: Engine, methods: dict[str, Engine]) -> None:
    whole = plain.generate(PROMPTS[0], max_new_tokens=24, ignore_eos=True)
    end = whole.ids[9]
    wanted = plain.generate(PROMPTS[0], max_new_tokens=24, stop_token_ids=[end]).ids
    engine = methods["exit"].using("self", "fixed", policy_options={"k": 8})
    assert engine.generate(PROMPTS[0], max_new_tokens=24, stop_token_ids=[end]).ids == wanted
    assert wanted == whole.ids[: whole.ids.index(end) + 1]


def test_the_first_draft_of_a_conversation_turn_is_a_chain_too(tmp_path: Path) -> None:
    drafter = draft_model()
    first = steps(drafter, context(4), 4)
    longer = Context([*IDS, *(step.tokens[0] for step in first[:2]), 9], Seeded(1), ahead=lambda: 4)
    alone = Context(list(longer.ids), Seeded(1))
    assert torch.equal(rows_of(steps(drafter, longer, 4)), rows_of(steps(draft_model(), alone, 4)))
