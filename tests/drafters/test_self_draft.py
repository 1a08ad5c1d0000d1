from copy import deepcopy
from itertools import islice
from typing import Any

import pytest
import torch

from forerun.core.chance import Seeded
from forerun.core.drafter import Drafter
from forerun.core.drive import drive
from forerun.core.identity import Identity
from forerun.core.values import ROOT, Context, Sampling
from forerun.drafters.base import Parts
from forerun.drafters.self_draft import build
from forerun.errors import UnsupportedModel, UnsupportedOption
from forerun.models.packed.pool import SequencePool
from forerun.models.packed.runner import HFRunner
from forerun.testing import tiny_model

IDENTITY = Identity("llama", 2, 32, 64, "0" * 16)
IDS = [5, 6, 7, 5, 6]
GREEDY = Sampling()


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny_model("llama")


@pytest.fixture
def pool(model: Any) -> SequencePool:
    return SequencePool(HFRunner(model))


def parts(pool: SequencePool) -> Parts:
    return Parts(pool, IDENTITY, None, lambda other: pytest.fail("nothing is to be loaded"))


def drafted(pool: SequencePool, number: int, sampling: Sampling = GREEDY, **options: Any) -> list[Any]:
    """Steps after a prefilled prompt, whose last token is pending."""
    sequence = pool.acquire()
    drafter = build(parts(pool), **options)(sequence)

    async def prefilled() -> Any:
        await sequence.sync(IDS[:-1])
        async for step in drafter.draft(Context(list(IDS), Seeded(3), sampling)):
            yield step

    return list(islice(drive(prefilled()), number))


def first_layers(model: Any, number: int) -> Any:
    cut = deepcopy(model)
    cut.model.layers = cut.model.layers[:number]
    return cut


def greedy(model: Any, number: int) -> list[int]:
    ids = list(IDS)
    for _ in range(number):
        with torch.no_grad():
            ids.append(int(model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1].argmax()))
    return ids[len(IDS) :]


@pytest.mark.parametrize("exit_layer", [1, 3])
def test_an_early_exit_drafts_what_its_layers_say_on_the_targets_own_prefix(
    model: Any, pool: SequencePool, exit_layer: int
) -> None:
    steps = drafted(pool, 4, exit_layer=exit_layer)
    assert [step.tokens[0] for step in steps] == greedy(first_layers(model, exit_layer), 4)
    assert [step.parents for step in steps] == [(ROOT,), (0,), (1,), (2,)]


def test_without_options_the_whole_model_drafts(model: Any, pool: SequencePool) -> None:
    assert [step.tokens[0] for step in drafted(pool, 4)] == greedy(model, 4)


def test_skipped_sublayers_draft_something_else_than_the_whole_model(pool: SequencePool) -> None:
    whole = drafted(pool, 1)[0].logits
    for options in ({"skip_attention": (2,)}, {"skip_mlp": (2,)}, {"skip_attention": (1,), "skip_mlp": (3,)}):
        skipped = drafted(pool, 1, **options)[0].logits
        assert skipped.shape == whole.shape == (1, 97)
        assert not torch.allclose(skipped, whole, atol=0.1)


def test_a_sampled_draft_carries_the_laws_that_it_was_drawn_from(pool: SequencePool) -> None:
    steps = drafted(pool, 3, Sampling(temperature=1.0), exit_layer=2)
    for number, step in enumerate(steps):
        torch.testing.assert_close(step.laws[0].probs, step.logits[0].softmax(-1))
        assert step.tokens[0] == Seeded(3).propose(step.laws[0], len(IDS) + number, len(IDS))


def test_every_request_gets_a_drafter_of_its_own(pool: SequencePool) -> None:
    make = build(parts(pool), exit_layer=2)
    one, other = make(pool.acquire()), make(pool.acquire())
    assert isinstance(one, Drafter)
    assert one is not other


@pytest.mark.parametrize("exit_layer", [0, 4, -1])
def test_an_exit_outside_of_the_model_is_refused(pool: SequencePool, exit_layer: int) -> None:
    with pytest.raises(ValueError, match=rf"exit_layer must be in 1..3 for a model of 4 layers, got {exit_layer}"):
        build(parts(pool), exit_layer=exit_layer)


@pytest.mark.parametrize("options", [{"skip_attention": (0, 4)}, {"skip_mlp": (-1,)}])
def test_a_skipped_layer_outside_of_the_model_is_refused(pool: SequencePool, options: Any) -> None:
    with pytest.raises(ValueError, match=r"a skipped layer must be in 0..3, got (4|-1)"):
        build(parts(pool), **options)


def test_an_exit_and_skipped_layers_together_are_refused(pool: SequencePool) -> None:
    with pytest.raises(UnsupportedOption, match="exit_layer or skip sets, not both"):
        build(parts(pool), exit_layer=2, skip_mlp=(1,))


def test_a_model_whose_layers_can_not_be_skipped_is_refused() -> None:
    post_norm = SequencePool(HFRunner(tiny_model("opt", do_layer_norm_before=False)))
    with pytest.raises(UnsupportedModel, match="normalise after their residual additions"):
        build(parts(post_norm), exit_layer=2)
