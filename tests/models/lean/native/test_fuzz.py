"""Random shapes, trees and companies: near a float64 forward written here, and the same bits alone.

FORERUN_FUZZ=SEED:COUNT runs other cases, or more of them.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from forerun.core.values import ROOT
from forerun.models.lean.native.library import SWITCH
from forerun.models.lean.runner import LeanRunner
from forerun.models.packed.sequence import Sequence
from forerun.testing import tiny_model

from ...running import chain, finish, together
from .kernels import FAMILIES, LEVELS, needs_kernels

pytestmark = needs_kernels
FIRST, COUNT = (int(number) for number in os.environ.get("FORERUN_FUZZ", "0:5").split(":"))
# of the largest logit: activations have 16 bits a group
TOLERANCE = 2e-3


@dataclass(frozen=True, slots=True)
class Text:
    """A prefix that is committed, and a tree after it."""

    prefix: list[int]
    tokens: list[int]
    parents: list[int]

    def path(self, row: int) -> list[int]:
        found: list[int] = []
        while row != ROOT:
            found.insert(0, self.tokens[row])
            row = self.parents[row]
        return [*self.prefix, *found]


def any_text(rng: random.Random, rows: int) -> Text:
    reach = rng.choice([0, 1, rows])
    parents = [rng.randint(max(ROOT, row - 1 - reach), row - 1) for row in range(rows)]
    return Text([rng.randrange(97) for _ in range(rng.randint(1, 90))], [rng.randrange(97) for _ in parents], parents)


def any_runner(rng: random.Random) -> LeanRunner:
    family, kv_heads, dim = rng.choice(FAMILIES), rng.choice([1, 2, 4]), rng.choice([8, 16, 24, 32])
    changes: dict[str, Any] = {
        "hidden_size": 32 * rng.randint(1, 3),
        "num_attention_heads": 4,
        "num_key_value_heads": kv_heads,
        "intermediate_size": 32 * rng.randint(1, 4),
        "num_hidden_layers": rng.randint(1, 3),
        "head_dim": dim,
    }
    if family in ("mistral", "gemma3_text", "olmo3"):
        changes |= {"sliding_window": rng.randint(2, 70)}
    kinds = ["full_attention", "sliding_attention" if family in ("gemma3_text", "olmo3") else "full_attention"] * 2
    if family in ("gemma3_text", "olmo3", "smollm3", "qwen2", "qwen3"):
        changes |= {"layer_types": kinds[: changes["num_hidden_layers"]]}
    if family == "smollm3":
        changes |= {"no_rope_layers": [rng.randint(0, 1) for _ in range(changes["num_hidden_layers"])]}
    if family in ("phi3", "qwen2", "olmo2", "olmo3", "granite"):
        # these have no say of their own
        changes["head_dim"] = changes["hidden_size"] // 4
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SWITCH, rng.choice(LEVELS))
        runner = LeanRunner.from_model(tiny_model(family, seed=rng.randint(0, 99), **changes), "int4")
    assert runner._step is not None
    return runner


def double(x: Any) -> np.ndarray:
    return np.asarray(x.double().numpy())


def normalised(norm: Any, x: np.ndarray, eps: float) -> np.ndarray:
    if norm is None:
        return x
    weight = double(norm.weight)
    return x * weight / np.sqrt((x * x).sum(-1, keepdims=True) + eps * x.shape[-1])


def product(x: np.ndarray, linear: Any) -> np.ndarray:
    y = x @ double(linear.dense()).T
    return y if linear.bias is None else y + double(linear.bias)[: y.shape[1]]


def attended(layer: Any, shape: Any, turns: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Every position of one text with those before it."""
    n, dim = len(x), shape.head_dim
    flat = product(normalised(layer.before_attention, x, shape.eps), layer.qkv)
    for norm in layer.head_norms:
        own = flat[:, norm._start : norm._start + norm._features].reshape(n, *norm.weight.shape)
        flat[:, norm._start : norm._start + norm._features] = normalised(norm, own, shape.eps).reshape(n, -1)
    heads = flat.reshape(n, -1, dim // 2, 2)
    pairs = heads[..., 0] + 1j * heads[..., 1]
    kinds = np.repeat(np.arange(3), [shape.heads, shape.kv_heads, shape.kv_heads])
    turned = pairs * turns[:n, kinds]
    heads = np.stack([turned.real, turned.imag], -1).reshape(n, -1, dim)
    queries, keys, values = np.split(heads, [shape.heads, shape.heads + shape.kv_heads], 1)
    group = shape.heads // shape.kv_heads
    scores = np.einsum("qhd,khd->hqk", queries, keys.repeat(group, 1))
    behind = np.arange(n)[:, None] - np.arange(n)[None]
    window = shape.patterns[layer.index].window or n
    scores[:, (behind < 0) | (behind >= window)] = -np.inf
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    shares /= shares.sum(-1, keepdims=True)
    return product(np.einsum("hqk,khd->qhd", shares, values.repeat(group, 1)).reshape(n, -1), layer.out)


def fed(layer: Any, shape: Any, x: np.ndarray) -> np.ndarray:
    both = product(normalised(layer.before_mlp, x, shape.eps), layer.gate_up).reshape(len(x), -1, 2, 16)
    gate, up = (both[:, :, i].reshape(len(x), -1) for i in (0, 1))
    return product(double(shape.activation(torch.from_numpy(gate))) * up, layer.down)


def reference(runner: LeanRunner, ids: list[int]) -> np.ndarray:
    """The last position's logits."""
    step: Any = runner._step
    shape, decoder = step._shape, step._decoder
    x = double(decoder.embedding.dense())[ids] * shape.embedding_scale
    for layer in decoder.layers:
        turns = step._rotation.table(shape.ropes[layer.index], len(ids)).to(torch.complex128).numpy()
        y = normalised(layer.after_attention, attended(layer, shape, turns, x), shape.eps)
        x = x + shape.residual_scale * y
        x = x + shape.residual_scale * normalised(layer.after_mlp, fed(layer, shape, x), shape.eps)
    return product(normalised(decoder.final_norm, x[-1:], shape.eps), decoder.head)[0] * shape.logit_scale


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_any_rows_of_any_model_in_any_company(seed: int) -> None:
    rng = random.Random(seed)
    runner = any_runner(rng)
    texts = [any_text(rng, rng.choice([1, 2, 3, 5, 8, 17, 33, 64])) for _ in range(rng.randint(1, 3))]
    before = torch.get_num_threads()
    torch.set_num_threads(rng.randint(1, 4))
    try:
        sequences = [Sequence(runner) for _ in texts]
        together(*(sequence.sync(text.prefix) for sequence, text in zip(sequences, texts, strict=True)))
        found = together(
            *(sequence.complete(text.tokens, text.parents) for sequence, text in zip(sequences, texts, strict=True))
        )
    finally:
        torch.set_num_threads(before)
    for text, rows in zip(texts, found, strict=True):
        for row in rng.sample(range(len(text.tokens)), min(3, len(text.tokens))):
            path = text.path(row)
            alone = finish(Sequence(runner).complete(path, chain(len(path)))).logits[-1]
            assert torch.equal(rows.logits[row], alone)
            wanted = reference(runner, path)
            assert np.abs(double(alone) - wanted).max() < TOLERANCE * np.abs(wanted).max()
