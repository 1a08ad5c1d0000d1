"""The trained module: what a pass reads, and that it is the Llama block that transformers has."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from forerun.train.distil.adapter_block import ExitAdapter, Norm, Past

from ..adapting import KINDS, base, shape

WIDTH = 32


def random_adapter(inputs: str = "state+token", depth: int = 1) -> ExitAdapter:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        adapter = ExitAdapter(shape(inputs, 2, depth))
        for parameter in adapter.parameters():
            torch.nn.init.normal_(parameter, mean=float(parameter.ndim == 1), std=0.2)
    return adapter


def normal(*sizes: int, seed: int = 0) -> Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed))


def passes(adapter: ExitAdapter, states: list[Tensor], tokens: Tensor) -> list[Tensor]:
    past: list[Past] = [[] for _ in adapter.layers]
    with torch.no_grad():
        return [adapter(one, tokens, past) for one in states]


def test_the_norm_is_transformers_and_stays_in_float32() -> None:
    own, theirs = Norm(WIDTH, 1e-6), base().model.norm
    with torch.no_grad():
        own.weight.copy_(theirs.weight)
    x = normal(3, WIDTH)
    torch.testing.assert_close(own(x), theirs(x))
    assert own(x.bfloat16()).dtype == torch.float32


def test_a_block_is_the_bases_own_layer() -> None:
    adapter = random_adapter("state")
    layer = base().model.layers[2]
    with torch.no_grad():
        for name, parameter in adapter.layers[0].named_parameters():
            parameter.copy_(dict(layer.named_parameters())[name])
        x = normal(2, 9, WIDTH)
        ids = torch.arange(9)[None]
        expected = layer(x, position_ids=ids, position_embeddings=base().model.rotary_emb(x, ids), attention_mask=None)
        own = adapter.layers[0](x, adapter._turns(9, x.device), [])
    torch.testing.assert_close(own, expected if isinstance(expected, Tensor) else expected[0], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("depth", [1, 2])
def test_a_row_of_a_pass_reads_the_first_pass_before_its_draft_and_its_own_draft(depth: int) -> None:
    """Row 5 of the third pass: rows 0 to 3 of the first pass, row 4 of the second, row 5 of its own."""
    adapter, tokens = random_adapter(depth=depth), normal(1, 8, WIDTH, seed=9)
    states = [normal(1, 8, WIDTH, seed=seed) for seed in range(3)]
    row = passes(adapter, states, tokens)[2][0, 5]

    def changed(number: int, place: int) -> bool:
        others = [one.clone() for one in states]
        others[number][0, place] += 1
        return not torch.allclose(passes(adapter, others, tokens)[2][0, 5], row, atol=1e-6)

    read = {(number, place) for number in range(3) for place in range(8) if changed(number, place)}
    assert read == {(0, 0), (0, 1), (0, 2), (0, 3), (1, 4), (2, 5)}


def test_rows_that_no_draft_could_have_here_are_numbers_nonetheless() -> None:
    adapter, tokens = random_adapter(), normal(2, 3, WIDTH)
    outs = passes(adapter, [normal(2, 3, WIDTH, seed=seed) for seed in range(5)], tokens)
    assert all(out.isfinite().all() for out in outs)


def test_texts_of_a_batch_and_rows_after_them_do_not_touch_each_other() -> None:
    adapter, tokens = random_adapter(), normal(2, 6, WIDTH, seed=3)
    states = [normal(2, 6, WIDTH, seed=seed) for seed in range(2)]
    both = passes(adapter, states, tokens)
    alone = passes(adapter, [one[:1, :4] for one in states], tokens[:1, :4])
    for out, own in zip(both, alone, strict=True):
        torch.testing.assert_close(out[:1, :4], own, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(("inputs", "exit_layer"), KINDS)
def test_weights_go_out_and_come_back_under_a_llamas_names(inputs: str, exit_layer: int) -> None:
    adapter, other = random_adapter(inputs, 2), ExitAdapter(shape(inputs, exit_layer, 2))
    weights = adapter.named_weights()
    assert {"state_norm.weight", "fuse.weight", "model.norm.weight", "model.layers.1.mlp.up_proj.weight"} <= set(
        weights
    )
    assert weights["fuse.weight"].shape == (WIDTH, WIDTH * (1 if inputs == "state" else 2))
    other.take_weights(weights)
    assert all(torch.equal(value, weights[name]) for name, value in other.named_weights().items())


def test_under_autocast_gradients_reach_every_weight() -> None:
    adapter = random_adapter(depth=2)
    past: list[Past] = [[], []]
    states = normal(2, 5, WIDTH)
    with torch.autocast("cpu", torch.bfloat16):
        out = adapter(states, normal(2, 5, WIDTH, seed=1), past)
        adapter.norm(adapter(out, normal(2, 5, WIDTH, seed=1), past)).pow(2).sum().backward()
    for name, parameter in adapter.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name
