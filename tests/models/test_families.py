"""Every family: packed logits equal its own forward, and greedy text equals transformers' own generate.

Texts are longer than windows and chunks, and a longer neighbour runs in the same forwards.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from forerun.core.chance import Seeded
from forerun.core.decode import decode
from forerun.core.drive import Batch
from forerun.core.identity import Identity
from forerun.core.values import Context, Sampling
from forerun.drafters import lookup, none, self_draft  # noqa: F401
from forerun.drafters.base import DRAFTERS, Parts
from forerun.models.loading.load import open_model
from forerun.models.packed.pool import SequencePool
from forerun.models.packed.sequence import Sequence
from forerun.policies import fixed  # noqa: F401
from forerun.policies.base import POLICIES
from forerun.testing import FAMILIES, WINDOW, tiny_model

from .running import chain, finish, off, own_logits, text, together

IDENTITY = Identity("llama", 2, 32, 64, "0" * 16)
LENGTHS = (21, 40)
NEW = 20

METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "none": ("none", {}),
    "lookup": ("lookup", {}),
    "early exit": ("self", {"exit_layer": 2}),
    "skipped sublayers": ("self", {"skip_attention": (1,), "skip_mlp": (2,)}),
}

_MLA = {name: value for name, value in FAMILIES["deepseek_v3"].items() if "rank" in name or "head_dim" in name}
_EXPERTS = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
_ROUTED = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "n_group": 2, "topk_group": 1}

# right as well, though not among the families that everything is tested on
OTHERS: dict[str, dict[str, Any]] = {
    "apertus": {},
    "arcee": {},
    "codegen": {"rotary_dim": 4, "n_embd": 32, "n_layer": 4, "n_head": 4, "n_positions": 256, "n_inner": 48},
    "cohere": {},
    "cohere2": {"sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention"] * 2},
    "deepseek_v2": {**_MLA, "num_key_value_heads": 4, **_ROUTED},
    "ernie4_5": {},
    "exaone4": {"sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention"] * 2},
    "glm": {},
    "glm4": {},
    "gpt_bigcode": {"n_embd": 32, "n_layer": 4, "n_head": 4, "n_positions": 256, "n_inner": 48},
    "gptj": {"rotary_dim": 4, "n_embd": 32, "n_layer": 4, "n_head": 4, "n_positions": 256, "n_inner": 48},
    "granitemoe": _EXPERTS,
    "helium": {},
    "hunyuan_v1_dense": {},
    "jetmoe": {"num_local_experts": 4, "num_experts_per_tok": 2, "kv_channels": 8, "num_attention_heads": 4},
    "minicpm3": {**_MLA, "num_key_value_heads": 4},
    "nanochat": {},
    "nemotron": {},
    "olmoe": _EXPERTS,
    "persimmon": {},
    "phi": {},
    "phimoe": _EXPERTS,
    "qwen2_moe": {**_EXPERTS, "shared_expert_intermediate_size": 24},
    "seed_oss": {},
    "stablelm": {"qk_layernorm": True},
    "starcoder2": {"sliding_window": WINDOW},
}


def family_model(family: str) -> Any:
    return tiny_model(family, **OTHERS.get(family, {}))


@pytest.mark.parametrize("family", [*FAMILIES, *OTHERS])
def test_packed_logits_equal_the_models_own_beside_a_longer_neighbour(family: str) -> None:
    model = family_model(family)
    runner = open_model(model).runner
    texts = [text(length, seed=length) for length in LENGTHS]
    answers = together(*(Sequence(runner).complete(ids, chain(len(ids))) for ids in texts))
    for ids, rows in zip(texts, answers, strict=True):
        assert off(rows.logits, own_logits(model, ids)) < 1e-4


@pytest.mark.parametrize("family", [*FAMILIES, *OTHERS])
def test_rows_after_a_cached_prefix_equal_the_models_own(family: str) -> None:
    model = family_model(family)
    sequence = Sequence(open_model(model).runner)
    ids = text(40)
    finish(sequence.sync(ids[:25]))
    rows = [finish(sequence.forward([token])).logits for token in ids[25:40]]
    assert off(torch.cat(rows), own_logits(model, ids)[25:]) < 1e-4


NARROW = {
    family: [name for name in options if name.endswith(("sliding_window", "chunk_size"))]
    for family, options in FAMILIES.items()
}


@pytest.mark.parametrize("family", [family for family, names in NARROW.items() if names])
def test_windows_and_chunks_bite_in_these_texts(family: str) -> None:
    """Else the equalities above would hold for a packed attention that ignores them."""
    wide = dict.fromkeys(NARROW[family], 200)
    ids = text(21)
    assert off(own_logits(tiny_model(family, **wide), ids), own_logits(tiny_model(family), ids)) > 1e-2


def test_soft_caps_bite_in_these_texts() -> None:
    ids = text(21)
    for cap in ("attn_logit_softcapping", "final_logit_softcapping"):
        assert off(own_logits(tiny_model("gemma2", **{cap: None}), ids), own_logits(tiny_model("gemma2"), ids)) > 1e-2


def greedy(model: Any, prompt: list[int]) -> list[int]:
    """What transformers' own generate writes."""
    model.generation_config.pad_token_id = 0
    ids: list[int] = model.generate(torch.tensor([prompt]), max_new_tokens=NEW, do_sample=False)[0].tolist()
    return ids


@pytest.mark.parametrize("family", [*FAMILIES, "jetmoe", "nemotron", "stablelm"])
def test_greedy_text_equals_transformers_own_with_every_drafter_in_a_batch(family: str) -> None:
    model = family_model(family)
    prompts = [text(length, seed=length) for length in LENGTHS]
    expected = [greedy(model, prompt) for prompt in prompts]
    pool = SequencePool(open_model(model).runner)
    policy = POLICIES.entry("fixed").build(k=3)
    for method, (name, options) in METHODS.items():
        factory = DRAFTERS.check(name, options).build(
            Parts(pool, IDENTITY, None, lambda name: pytest.fail(name)), **options
        )
        batch: Batch[Any] = Batch()
        contexts = [Context(list(prompt), Seeded(1), Sampling(), NEW) for prompt in prompts]
        for i, context in enumerate(contexts):
            target = pool.acquire(context.ids)
            batch.add(i, decode(target, factory(target), policy(), context))
        events = list(batch.run())
        assert [event.error for event in events if event.error] == []
        assert [context.ids for context in contexts] == expected, method
