"""The packed attention function: what it refuses, and trees, windows, chunks, soft caps and sinks against whole forwards."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from forerun.errors import UnsupportedModel
from forerun.models.packed.attention import attend, describe_mask, layer_index
from forerun.models.packed.forward import Packed, PackedMask, Part
from forerun.models.packed.mask import Pattern
from forerun.models.packed.runner import HFRunner
from forerun.models.packed.sequence import Sequence
from forerun.models.packed.store import LayerStore
from forerun.testing import FAMILIES, tiny_model

from ..running import finish, off, own_logits, text, together


class Layer(nn.Module):
    def __init__(self, index: object = 0) -> None:
        super().__init__()
        self.layer_idx = index


def packed(n: int = 3) -> Packed:
    return Packed([Part(LayerStore(1, 8), 0, 0, n, list(range(n)))])


def states(heads: int, n: int = 3, seed: int = 0) -> Tensor:
    return torch.randn(1, heads, n, 8, generator=torch.Generator().manual_seed(seed))


def run(query_heads: int = 4, mask: object = Pattern(), packed_rows: Packed | None = None, **options: object) -> Tensor:
    own = states(query_heads), states(2, seed=1), states(2, seed=2)
    given = PackedMask(mask, packed_rows or packed()) if isinstance(mask, Pattern) else mask
    return attend(Layer(), *own, given, **options)[0]


def expected(scale: float = 8**-0.5, softcap: float | None = None, sinks: Tensor | None = None) -> Tensor:
    """Causal attention, row by row and head by head."""
    query, key, value = states(4)[0], states(2, seed=1)[0], states(2, seed=2)[0]
    output = torch.zeros(1, 3, 4, 8)
    for head in range(4):
        for row in range(3):
            scores = key[head // 2, : row + 1] @ query[head, row] * scale
            if softcap is not None:
                scores = softcap * torch.tanh(scores / softcap)
            weights = scores.exp()
            total = weights.sum() + (0 if sinks is None else sinks[head].exp())
            output[0, row, head] = weights / total @ value[head // 2, : row + 1]
    return output


def test_attention_is_causal_with_shared_heads() -> None:
    assert torch.allclose(run(), expected(), atol=1e-6)


def test_the_models_scaling_is_used() -> None:
    assert torch.allclose(run(scaling=0.1), expected(scale=0.1), atol=1e-6)


def test_soft_caps_are_used() -> None:
    assert torch.allclose(run(softcap=0.3), expected(softcap=0.3), atol=1e-6)
    assert not torch.allclose(run(softcap=0.3), expected(), atol=1e-3)


def test_sinks_take_their_share() -> None:
    sinks = torch.tensor([0.5, -1.0, 2.0, 0.0])
    assert torch.allclose(run(s_aux=sinks), expected(sinks=sinks), atol=1e-6)


def test_soft_caps_and_sinks_go_together_with_a_scaling() -> None:
    sinks = torch.ones(4)
    actual = run(s_aux=sinks, softcap=0.5, scaling=0.2)
    assert torch.allclose(actual, expected(scale=0.2, softcap=0.5, sinks=sinks), atol=1e-6)


def test_the_result_is_laid_out_as_other_attention_functions_lay_it_out() -> None:
    assert run().is_contiguous()


@pytest.mark.parametrize("option", ["head_mask", "position_bias", "cu_seq_lens_q", "alibi"])
def test_an_unknown_keyword_is_refused_by_name(option: str) -> None:
    with pytest.raises(UnsupportedModel, match=f"Layer asks for attention with {option}, which forerun doesn't know"):
        run(**{option: torch.ones(1)})


def test_several_unknown_keywords_are_all_named() -> None:
    with pytest.raises(UnsupportedModel, match="with dropout, is_causal=False, level, which"):
        run(dropout=0.1, is_causal=False, level=2)


def test_an_unknown_keyword_that_asks_for_nothing_passes() -> None:
    assert torch.equal(run(head_mask=None, output_attentions=False, alibi=False), run())


@pytest.mark.parametrize("mask", [None, torch.zeros(1, 1, 3, 3)])
def test_a_model_that_keeps_the_mask_to_itself_is_refused(mask: Tensor | None) -> None:
    with pytest.raises(UnsupportedModel, match="doesn't hand its layer's mask to its attention function as it is"):
        run(mask=mask)


def test_a_model_need_not_hand_its_keywords_to_its_attention() -> None:
    assert torch.equal(run(packed=packed()), run())


def test_a_second_attention_in_one_layer_is_refused() -> None:
    state = packed()
    run(packed_rows=state)
    with pytest.raises(UnsupportedModel, match="attends twice in layer 0"):
        run(packed_rows=state)


@pytest.mark.parametrize("index", [None, "0"])
def test_an_attention_that_does_not_know_its_layer_is_refused(index: object) -> None:
    with pytest.raises(UnsupportedModel, match="doesn't know which layer it belongs to"):
        layer_index(Layer(index))


def test_the_mask_function_gives_a_pattern_in_place_of_a_mask() -> None:
    pattern = describe_mask(mask_function=lambda b, h, q, k: k <= q, batch_size=1, dtype=torch.float32)
    assert pattern == Pattern()


def test_a_batch_sees_nothing_of_its_neighbours() -> None:
    model = tiny_model("mistral")
    runner = HFRunner(model)
    texts = [text(length, seed=length) for length in (3, 40, 1, 17)]
    rows = together(*(Sequence(runner).complete(ids, range(-1, len(ids) - 1)) for ids in texts))
    for ids, own in zip(texts, rows, strict=True):
        assert off(own.logits, own_logits(model, ids)) < 1e-4


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", range(3))
def test_every_path_of_a_tree_equals_its_own_forward(family: str, seed: int) -> None:
    """The prefix is longer than windows and chunks, whose borders fall within the tree."""
    model = tiny_model(family)
    prefix = text(13 + seed, seed)
    generator = torch.Generator().manual_seed(seed)
    parents = [-1, *(int(torch.randint(max(-1, row - 3), row, (), generator=generator)) for row in range(1, 14))]
    tokens = text(14, seed=100 + seed)
    sequence = Sequence(HFRunner(model))
    finish(sequence.sync(prefix))
    finish(sequence.forward(tokens[:5], parents[:5]))
    later = finish(sequence.forward(tokens[5:], parents[5:])).logits
    whole = finish(sequence.complete(tokens, parents)).logits
    for row in range(14):
        path = [row]
        while parents[path[0]] != -1:
            path.insert(0, parents[path[0]])
        own = own_logits(model, [*prefix, *(tokens[node] for node in path)])[-1]
        assert off(whole[row], own) < 1e-4
        if row >= 5:
            assert off(later[row - 5], own) < 1e-4
