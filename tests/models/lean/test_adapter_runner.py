"""The runner of an exit adapter: packed, in trees and after prefixes it says what its rows say alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from forerun.core.values import ROOT
from forerun.errors import InvalidModelFile, UnsupportedModel, UnsupportedOption
from forerun.models.files.adapter import AdapterFile
from forerun.models.lean.adapter_runner import AdapterRunner
from forerun.models.lean.runner import LeanRunner
from forerun.models.packed.plan import LayerPlan
from forerun.models.packed.runner import HFRunner
from forerun.models.packed.sequence import Sequence
from forerun.testing import VOCABULARY, tiny_adapter, tiny_model

from ..running import chain, finish, off, text, together

WIDTH = 32
LAST = frozenset({1})


def adapter(inputs: str = "state+token", depth: int = 1) -> AdapterFile:
    return tiny_adapter(tiny_model("llama"), 2, inputs, depth=depth)


def base(kind: str) -> Any:
    return HFRunner(tiny_model("llama")) if kind == "hf" else LeanRunner.from_model(tiny_model("llama"))


def states(count: int, seed: int = 0) -> Tensor:
    return torch.randn(count, WIDTH, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def runner() -> AdapterRunner:
    return AdapterRunner(adapter(), base("hf"))


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("inputs", ["state", "state+token"])
def test_it_says_the_same_on_either_runner_of_its_base(inputs: str, depth: int) -> None:
    def rows(kind: str) -> Tensor:
        sequence = Sequence(AdapterRunner(adapter(inputs, depth), base(kind)))
        logits: Tensor = finish(sequence.forward(text(9), states=states(9))).logits
        return logits

    assert rows("hf").shape == (9, VOCABULARY)
    assert off(rows("lean"), rows("hf")) < 1e-4


def test_a_prefix_in_pieces_is_a_prefix_in_one(runner: AdapterRunner) -> None:
    ids, read = text(14), states(14)
    whole, pieces = Sequence(runner), Sequence(runner)
    expected = finish(whole.sync(ids, states=read)).logits
    finish(pieces.sync(ids[:6], states=read[:6]))
    assert off(finish(pieces.sync(ids, states=read[6:])).logits, expected) < 1e-4
    assert pieces.ids == ids


def test_requests_of_one_batch_do_not_touch_each_other(runner: AdapterRunner) -> None:
    work = [(text(5), states(5)), (text(11, 1), states(11, 1)), (text(2, 2), states(2, 2))]
    alone = [finish(Sequence(runner).sync(ids, states=read)).logits for ids, read in work]
    both = together(*(Sequence(runner).sync(ids, states=read) for ids, read in work))
    for one, other in zip(alone, both, strict=True):
        assert off(other.logits, one) < 1e-4


def test_a_tree_equals_each_path_alone(runner: AdapterRunner) -> None:
    sequence = Sequence(runner)
    finish(sequence.sync(text(6), states=states(6)))
    tokens, parents, read = [1, 2, 3, 4], [ROOT, 0, 0, 2], states(4, 5)
    rows = finish(sequence.forward(tokens, parents, states=read))
    sequence.drop()
    path = [0, 2, 3]
    alone = finish(sequence.forward([tokens[node] for node in path], chain(3), states=read[path]))
    assert off(rows.logits[path], alone.logits) < 1e-4


def test_its_last_states_are_tapped_and_its_head_reads_their_norm(runner: AdapterRunner) -> None:
    rows = finish(Sequence(runner).forward(text(3), taps=LAST, states=states(3)))
    assert rows.taps[1].shape == (3, WIDTH)
    normed = torch.nn.functional.rms_norm(rows.taps[1], (WIDTH,), adapter().weights["model.norm.weight"], 1e-6)
    torch.testing.assert_close(rows.hidden, normed, atol=1e-4, rtol=1e-4)
    assert off(rows.logits, runner.head(rows.hidden)) < 1e-5


def test_it_reads_states_and_with_them_next_tokens_or_not() -> None:
    for inputs, reads_tokens in (("state", False), ("state+token", True)):
        made = AdapterRunner(adapter(inputs), base("hf"))
        own = finish(Sequence(made).forward([3, 4], states=states(2))).logits
        other_token = finish(Sequence(made).forward([3, 5], states=states(2))).logits
        other_state = finish(Sequence(made).forward([3, 4], states=states(2, 1))).logits
        assert torch.allclose(own, other_token) != reads_tokens
        assert not torch.allclose(own, other_state)


def test_without_states_it_is_refused(runner: AdapterRunner) -> None:
    with pytest.raises(ValueError, match="an exit adapter reads states beside tokens; hand them to the sequence"):
        finish(Sequence(runner).forward([1, 2]))


def test_a_restricted_head_of_the_base_drafts_its_tokens_only() -> None:
    lean = base("lean")
    made = AdapterRunner(adapter(), lean, head=lean.add_head([3, 9, 40]))
    whole = AdapterRunner(adapter(), lean)
    rows = finish(Sequence(made).forward([1, 2], states=states(2))).logits
    expected = finish(Sequence(whole).forward([1, 2], states=states(2))).logits
    assert rows[0].isfinite().nonzero().flatten().tolist() == [3, 9, 40]
    assert off(rows[:, [3, 9, 40]], expected[:, [3, 9, 40]]) < 1e-4


def test_small_weights_say_nearly_the_same() -> None:
    whole, small = (AdapterRunner(adapter(), base("lean"), weights=weights) for weights in ("", "int8"))
    rows = [finish(Sequence(made).forward(text(6), states=states(6))).logits for made in (whole, small)]
    assert 0 < off(rows[1], rows[0]) < 0.3


def test_what_it_has_no_place_for_or_lacks_is_refused() -> None:
    file = adapter()
    lacking = {name: value for name, value in file.weights.items() if "up_proj" not in name}
    with pytest.raises(InvalidModelFile, match=r"lacks the weight model.layers.0.mlp.up_proj.weight"):
        AdapterRunner(replace(file, weights=lacking), base("hf"))
    more = {**file.weights, "model.layers.1.mlp.up_proj.weight": torch.zeros(1)}
    with pytest.raises(InvalidModelFile, match=r"holds a weight model.layers.1.mlp.up_proj.weight that has no place"):
        AdapterRunner(replace(file, weights=more), base("hf"))


def test_what_it_can_not_do_is_refused(runner: AdapterRunner) -> None:
    with pytest.raises(UnsupportedModel, match="it has no plans"):
        runner.check_plan(LayerPlan.early_exit(1, 4))
    with pytest.raises(UnsupportedOption, match="one form"):
        runner.add_weights("int8")
    with pytest.raises(UnsupportedOption, match="restrict that one"):
        runner.add_head([1])
    with pytest.raises(ValueError, match="unknown weights"):
        AdapterRunner(adapter(), base("hf"), weights="int3")


def test_the_bases_embedding_is_its_own(runner: AdapterRunner) -> None:
    ids = torch.tensor([3, 96])
    assert torch.equal(runner.embed(ids), tiny_model("llama").model.embed_tokens.weight[ids])
