"""Decoders with an attention of their own: packed rows, trees, windows and skipped layers against their own forward."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from forerun import load
from forerun.errors import UnsupportedModel
from forerun.families.small import small_model
from forerun.models.loading.load import open_model
from forerun.models.packed.cached_attention import PackedCache, added_mask, attends_by_itself, carried, opened_attention
from forerun.models.packed.forward import Packed, Part
from forerun.models.packed.mask import Pattern
from forerun.models.packed.sequence import Sequence
from forerun.models.packed.store import LayerStore

from ..running import chain, finish, off, own_logits, text, together

FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "falcon": ("falcon", {}),
    "falcon, new architecture": ("falcon", {"new_decoder_architecture": True, "num_kv_heads": 2}),
    "falcon, one after the other": ("falcon", {"parallel_attn": False, "multi_query": False, "num_kv_heads": 4}),
    "gpt neo": ("gpt_neo", {}),
    "gpt neox japanese": ("gpt_neox_japanese", {}),
    "xglm": ("xglm", {}),
}
MODELS = {name: small_model(family, options) for name, (family, options) in FAMILIES.items()}
NEW = 20


@pytest.mark.parametrize("name", FAMILIES)
def test_packed_rows_equal_the_models_own(name: str) -> None:
    """A longer neighbour runs in the same forwards, and windows are shorter than both."""
    runner = open_model(MODELS[name]).runner
    texts = [text(length, seed=length) for length in (21, 40, 1)]
    answers = together(*(Sequence(runner).complete(ids, chain(len(ids))) for ids in texts))
    for ids, rows in zip(texts, answers, strict=True):
        assert off(rows.logits, own_logits(MODELS[name], ids)) < 1e-4


@pytest.mark.parametrize("name", FAMILIES)
def test_every_path_of_a_tree_equals_its_own_forward(name: str) -> None:
    model, prefix, tokens = MODELS[name], text(13), text(8, seed=1)
    parents = [-1, 0, 0, 1, 2, -1, 5, 4]
    sequence = Sequence(open_model(model).runner)
    finish(sequence.sync(prefix))
    finish(sequence.forward(tokens[:4], parents[:4]))
    rows = finish(sequence.forward(tokens[4:], parents[4:])).logits
    for row in range(4, 8):
        path = [row]
        while parents[path[0]] != -1:
            path.insert(0, parents[path[0]])
        own = own_logits(model, [*prefix, *(tokens[node] for node in path)])[-1]
        assert off(rows[row - 4], own) < 1e-4


@pytest.mark.parametrize("name", FAMILIES)
def test_greedy_text_equals_transformers_own_with_every_drafter_in_a_batch(name: str) -> None:
    model = MODELS[name]
    model.generation_config.eos_token_id = None
    prompts = [text(length, seed=length) for length in (21, 40)]
    expected = [
        model.generate(torch.tensor([prompt]), max_new_tokens=NEW, do_sample=False, pad_token_id=0)[0].tolist()
        for prompt in prompts
    ]
    plain = load(model)
    skipping = {"exit_layer": 2}, {"skip_attention": (1,), "skip_mlp": (2,)}
    for drafter, options in (("none", {}), ("lookup", {}), *(("self", one) for one in skipping)):
        results = plain.using(drafter, drafter_options=options).generate(prompts, max_new_tokens=NEW, ignore_eos=True)
        assert [[*ids, *one.ids] for ids, one in zip(prompts, results, strict=True)] == expected, (drafter, options)


def test_local_attention_bites_in_these_texts() -> None:
    ids = text(21)
    wide = small_model("gpt_neo", {"window_size": 200})
    assert off(own_logits(wide, ids), own_logits(MODELS["gpt neo"], ids)) > 1e-2


def test_the_users_model_keeps_its_own_mask_and_attention() -> None:
    model = small_model("gpt_neo")
    before = own_logits(model, text(21))
    load(model)
    assert torch.equal(own_logits(model, text(21)), before)
    assert model.config._attn_implementation == "eager"
    assert model.transformer.h[1].attn.attention.bias.shape == (1, 1, 256, 256)


@pytest.mark.parametrize(("family", "by_itself"), [("llama", False), ("stablelm", False), ("falcon", True)])
def test_a_layer_that_does_not_know_the_attention_interface_attends_by_itself(family: str, by_itself: bool) -> None:
    model = small_model(family)
    layers = model.transformer.h if family == "falcon" else model.model.layers
    assert attends_by_itself(layers[0]) is by_itself


class Masked(nn.Module):
    def __init__(self, seen: Tensor) -> None:
        super().__init__()
        self.register_buffer("bias", seen[None, None])


def seen(size: int = 12) -> Tensor:
    return torch.ones(size, size, dtype=torch.bool).tril()


@pytest.mark.parametrize(
    ("mask", "pattern"),
    [(seen(), Pattern()), (seen() & seen().triu(-2), Pattern(window=3)), (seen()[:1, :1], Pattern())],
)
def test_a_mask_in_a_buffer_is_recognised_and_opened_up(mask: Tensor, pattern: Pattern) -> None:
    module = Masked(mask)
    assert opened_attention(module, "eager") == pattern
    assert module.bias[:, :, 5000:5003, :6000].all()


def test_another_mask_in_a_buffer_is_refused() -> None:
    with pytest.raises(UnsupportedModel, match="Masked has a mask of its own that is neither causal nor a window"):
        opened_attention(Masked(seen() & (torch.arange(12) % 3 > 0)), "eager")


def parts() -> Packed:
    first = Part(LayerStore(1, 8), committed=2, first=0, n=1, depths=[0])
    return Packed([first, Part(LayerStore(1, 8), committed=0, first=0, n=2, depths=[0, 1])])


def test_the_mask_keeps_texts_apart() -> None:
    mask = added_mask(parts(), 0, Pattern(), torch.zeros(1))
    lowest = torch.finfo(torch.float32).min
    expected = torch.tensor([[0, 0, 0, 1, 1], [1, 1, 1, 0, 1], [1, 1, 1, 0, 0]]) * lowest
    assert torch.equal(mask, expected[None, None])


def test_a_cache_writes_into_each_texts_own_store_and_gives_all() -> None:
    packed = parts()
    old, new = torch.randn(4, 2, 8), torch.randn(1, 4, 3, 8)
    packed.parts[0].store.write(0, 0, old, old)
    keys, values = PackedCache(packed).update(new, -new, 0)
    assert torch.equal(keys, torch.cat([old, new[0]], 1)[None])
    assert torch.equal(values[0, :, 2:], -new[0])
    assert packed.layers_seen == {0}


def test_a_second_attention_in_one_layer_is_refused() -> None:
    cache = PackedCache(parts())
    states = torch.randn(1, 4, 3, 8)
    cache.update(states, states, 0)
    with pytest.raises(UnsupportedModel, match="layer 0 attends twice"):
        cache.update(states, states, 0)


def test_a_packed_forward_travels_with_the_cache() -> None:
    packed = parts()
    assert carried([None, torch.ones(1), PackedCache(packed)]) is packed
    assert carried([None]) is None
