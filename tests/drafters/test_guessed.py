"""Drafts of guesses: the same drafts in fewer forwards, whatever is guessed, and the texts of plain decoding."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from collections.abc import Sequence as Series
from contextlib import aclosing
from typing import Any

import pytest
import torch

from forerun import POLICIES, Engine, load
from forerun.core.chance import Seeded
from forerun.core.drafter import Drafter
from forerun.core.drive import drive
from forerun.core.learned import learned_by
from forerun.core.values import Context, Sampling, Step
from forerun.drafters.draft_model import ModelDraft
from forerun.drafters.guessed import Guessed
from forerun.drafters.self_draft import SelfDraft
from forerun.errors import UnsupportedOption
from forerun.models.lean.native.library import SWITCH, processor_levels
from forerun.models.lean.runner import LeanRunner
from forerun.models.packed.plan import LayerPlan
from forerun.models.packed.pool import SequencePool
from forerun.models.packed.sequence import Sequence
from forerun.testing import save_tiny, tiny_model

from ..models.running import finish
from .carving import PROMPTS, save_carvable

IDS = [5, 6, 7, 8, 5, 6, 7]
KERNELS = ["torch", *(["native"] if processor_levels() else [])]


def runner(kernels: str, **changes: Any) -> LeanRunner:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SWITCH, processor_levels()[-1] if kernels == "native" else "off")
        return LeanRunner.from_model(tiny_model("llama", **{"intermediate_size": 64, **changes}), "int4")


def draft_model(kernels: str) -> Drafter:
    return ModelDraft(SequencePool(runner(kernels), drafting=True), 97)


def fewer_tokens(kernels: str) -> Drafter:
    return ModelDraft(SequencePool(runner(kernels), drafting=True), 50, width=97)


def own_layers(plan: LayerPlan, kernels: str) -> Drafter:
    sequence = Sequence(runner(kernels))
    finish(sequence.sync(IDS))
    del sequence.ids[-1]  # the last token is pending
    return SelfDraft(sequence, plan)


CHECKING = {
    "draft_model": draft_model,
    "fewer tokens": fewer_tokens,
    "exit": lambda kernels: own_layers(LayerPlan.early_exit(2, 4), kernels),
    "skips": lambda kernels: own_layers(LayerPlan.skip(4, (1, 2), (2,)), kernels),
}


class Knowing(Drafter):
    """Guesses from a text: the tokens of it after those drafted so far, with a wrong one at every place of `wrong`."""

    def __init__(self, text: Series[int], wrong: Series[int] = ()) -> None:
        self._text, self._wrong = list(text), wrong
        self.asked: list[int] = []

    def draft(self, context: Context) -> AsyncGenerator[Step]:
        raise AssertionError("it guesses, and others draft")

    def guess(self, context: Context, drafted: Series[int], most: int) -> Series[int]:
        self.asked.append(len(drafted))
        places = range(len(drafted), min(len(drafted) + most, len(self._text)))
        return [(self._text[place] + (place in self._wrong)) % 97 for place in places]


def steps(drafter: Drafter, context: Context, number: int) -> list[Step]:
    async def taken() -> Any:
        found: list[Step] = []
        async with aclosing(drafter.draft(context)) as source:
            while len(found) < number and (step := await anext(source, None)) is not None:
                found.append(step)
        yield found

    (found,) = drive(taken())
    return found


def context(ahead: int, sampling: Sampling | None = None) -> Context:
    return Context(list(IDS), Seeded(1), sampling or Sampling(), ahead=lambda: ahead)


@pytest.mark.parametrize("wrong", [(), (0,), (2,), (1, 2, 5), range(9)])
@pytest.mark.parametrize("kind", CHECKING)
@pytest.mark.parametrize("kernels", KERNELS)
def test_the_draft_is_the_one_without_guesses(kernels: str, kind: str, wrong: Series[int]) -> None:
    wanted = steps(CHECKING[kind](kernels), context(0), 8)
    tokens = [step.tokens[0] for step in wanted]
    found = steps(Guessed(CHECKING[kind](kernels), Knowing(tokens, wrong)), context(6), 8)
    assert [(step.tokens, step.parents, step.laws) for step in found] == [
        (step.tokens, step.parents, step.laws) for step in wanted
    ]
    for one, other in zip(found, wanted, strict=True):
        assert one.logits is not None
        assert other.logits is not None
        assert (one.logits - other.logits)[:, :50].abs().max() < (1e-4 if kernels == "torch" else 1e-30)
        assert one.forward_seconds > 0


def test_right_guesses_save_forwards_and_each_forward_is_counted_once() -> None:
    wanted = [step.tokens[0] for step in steps(draft_model("torch"), context(0), 8)]
    drafter = Guessed(draft_model("torch"), Knowing(wanted))
    found = steps(drafter, context(4), 8)
    assert [step.counts.forwards for step in found] == [1, 0, 0, 0, 1, 0, 0, 0]
    wrong_at_2 = steps(Guessed(draft_model("torch"), Knowing(wanted, (2,))), context(4), 8)
    assert [step.counts.forwards for step in wrong_at_2] == [1, 0, 0, 1, 0, 0, 0, 1]


def test_rows_that_nobody_took_are_no_forward_of_their_own() -> None:
    wanted = [step.tokens[0] for step in steps(draft_model("torch"), context(0), 8)]
    drafter = Guessed(draft_model("torch"), Knowing(wanted))
    steps(drafter, context(4), 2)
    assert drafter.unused.counts.forwards == 0
    assert drafter.unused.seconds > 0


def test_it_guesses_no_further_than_it_is_likely_to_be_asked() -> None:
    drafter = Guessed(draft_model("torch"), guessing := Knowing([1] * 50, wrong=()))
    steps(drafter, context(1), 3)
    assert guessing.asked == []
    steps(drafter, context(3), 3)
    assert guessing.asked


@pytest.mark.parametrize("sampling", [Sampling(temperature=0.8), Sampling(repetition_penalty=1.3)])
def test_nothing_is_guessed_where_tokens_are_drawn_or_penalised(sampling: Sampling) -> None:
    drafter = Guessed(draft_model("torch"), guessing := Knowing([1] * 50))
    wanted = steps(draft_model("torch"), context(0, sampling), 4)
    assert [step.tokens for step in steps(drafter, context(4, sampling), 4)] == [step.tokens for step in wanted]
    assert guessing.asked == []


def test_a_guess_that_the_draft_model_does_not_have_ends_the_guesses() -> None:
    wanted = [step.tokens[0] for step in steps(fewer_tokens("torch"), context(0), 4)]
    found = steps(Guessed(fewer_tokens("torch"), Knowing([wanted[0], 96, *wanted[2:]])), context(4), 4)
    assert [step.tokens[0] for step in found] == wanted
    assert [step.counts.forwards for step in found][:2] == [1, 0]


def test_the_drafts_sequence_holds_what_a_fresh_forward_gives() -> None:
    own = runner("torch")
    drafter = ModelDraft(SequencePool(own, drafting=True), 97)
    wanted = [step.tokens[0] for step in steps(draft_model("torch"), context(0), 6)]
    steps(Guessed(drafter, Knowing(wanted, (1, 3))), context(5), 6)
    longer = Context([*IDS, *wanted[:2], 9], Seeded(1), ahead=lambda: 3)
    (step,) = steps(drafter, longer, 1)
    rows = finish(Sequence(own).sync(longer.ids))
    assert step.logits is not None
    assert torch.allclose(step.logits, rows.logits, atol=1e-4)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return load(save_carvable(tmp_path_factory.mktemp("models") / "target"), drafter="none", weights="int4")


@pytest.fixture(scope="module")
def methods(plain: Engine, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Engine]:
    draft = str(save_tiny(tmp_path_factory.mktemp("drafts") / "draft", seed=1, intermediate_size=64))
    options: dict[str, dict[str, Any]] = {
        "exit": {"of": "self", "exit_layer": 2, "least": 0.01},
        "draft_model": {"of": "draft_model", "model": draft, "least": 0.01, "vocabulary": 100},
        "chosen": {"of": "draft_model", "model": draft, "draws": False},
        "chosen layers": {"of": "self", "exit_layer": 2, "draws": False},
    }
    return {name: plain.using("guessed", drafter_options=own) for name, own in options.items()}


RULES = [name for name in POLICIES.names if name not in ("acceptance_head", "disco")]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("method", ["exit", "draft_model"])
def test_texts_are_plain_texts_under_every_rule(
    method: str, rule: str, plain: Engine, methods: dict[str, Engine]
) -> None:
    wanted = [plain.generate(prompt, max_new_tokens=20).ids for prompt in PROMPTS]
    engine = methods[method].using(methods[method].drafter, rule)
    assert [engine.generate(prompt, max_new_tokens=20).ids for prompt in PROMPTS] == wanted
    assert [result.ids for result in engine.generate(list(PROMPTS), max_new_tokens=20)] == wanted


@pytest.mark.parametrize("method", ["chosen", "chosen layers"])
def test_seeded_texts_are_plain_ones_where_drafts_are_chosen(
    method: str, plain: Engine, methods: dict[str, Engine]
) -> None:
    options: dict[str, Any] = {"max_new_tokens": 20, "temperature": 0.9, "do_sample": True, "seed": 5}
    for prompt in PROMPTS:
        assert methods[method].generate(prompt, **options).ids == plain.generate(prompt, **options).ids


@pytest.mark.parametrize("of", ["lookup", "none", "recycle"])
def test_a_drafter_that_checks_nothing_is_refused(of: str, plain: Engine) -> None:
    with pytest.raises(UnsupportedOption, match=f"drafter {of!r} can't check guesses; of must be draft_model or self"):
        plain.using("guessed", drafter_options={"of": of})


def test_an_option_of_neither_is_refused(plain: Engine) -> None:
    with pytest.raises(UnsupportedOption, match="no option 'depth'"):
        plain.using("guessed", drafter_options={"of": "self", "exit_layer": 2, "depth": 3})


def test_what_suffix_learns_is_learnt_from_the_models_own_tokens(plain: Engine) -> None:
    engine = plain.using("guessed", drafter_options={"of": "self", "exit_layer": 2, "least": 0.01})
    engine.generate(PROMPTS[0], max_new_tokens=24, ignore_eos=True)
    (acceptance,) = learned_by(engine.drafter).values()
    assert acceptance.as_data() != type(acceptance)().as_data()
