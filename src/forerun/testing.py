"""Tiny random models of every supported family, built in code, whose windows and soft caps bite within a few tokens.

And a tiny tokenizer, one token a byte, so that a character can be split between tokens; tiny adapters, drafts and heads.
"""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from .core.identity import Pair, identity_of
from .models.files.adapter import AdapterFile, AdapterShape, write_adapter
from .models.files.classifier_heads import ACCEPTANCE, LOOKAHEAD, ClassifierHeadFile, write_classifier_head
from .models.files.compact_draft import RANKING, CompactDraft, DraftFacts, write_compact
from .models.files.draft_shape import keep_layers
from .models.lean.draft_weights import compacted

VOCABULARY = 97
WINDOW = 8

_COMMON: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
    "pad_token_id": None,
    "bos_token_id": 1,
    "eos_token_id": None,
    "tie_word_embeddings": False,
}
_MIXED = ["sliding_attention", "full_attention", "sliding_attention", "full_attention"]
_MLA = {
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 8,
    "head_dim": 4,
    "num_key_value_heads": 4,
    "n_routed_experts": 4,
    "n_group": 2,
    "topk_group": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "first_k_dense_replace": 1,
}

FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen2": {},
    "qwen3": {},
    "mistral": {"sliding_window": WINDOW},
    "gemma": {},
    "gemma2": {
        "sliding_window": WINDOW,
        "layer_types": _MIXED,
        "attn_logit_softcapping": 0.5,
        "final_logit_softcapping": 2.0,
        "query_pre_attn_scalar": 8,
    },
    "gemma3_text": {"sliding_window": WINDOW, "layer_types": _MIXED, "query_pre_attn_scalar": 8},
    "phi3": {"sliding_window": WINDOW},
    "olmo2": {},
    "olmo3": {"sliding_window": WINDOW, "layer_types": _MIXED},
    "granite": {"embedding_multiplier": 2.0, "residual_multiplier": 0.5, "logits_scaling": 3.0},
    "gpt2": {"n_embd": 32, "n_layer": 4, "n_head": 4, "n_positions": 256, "n_inner": 48},
    "gpt_neox": {},
    "opt": {"ffn_dim": 48, "word_embed_proj_dim": 32},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": WINDOW},
    "qwen3_moe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "decoder_sparse_step": 1},
    "deepseek_v3": _MLA,
    "smollm3": {"no_rope_layers": [1, 1, 1, 0]},
    "gpt_oss": {
        "sliding_window": WINDOW,
        "layer_types": _MIXED,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    },
    "llama4_text": {
        "attention_chunk_size": WINDOW,
        "attn_temperature_tuning": False,
        "layer_types": ["chunked_attention", "full_attention", "chunked_attention", "full_attention"],
        "no_rope_layers": [1, 0, 1, 0],
        "num_local_experts": 2,
        "interleave_moe_layer_step": 2,
        "intermediate_size_mlp": 48,
    },
}


def tiny_model(family: str, seed: int = 0, **changes: Any) -> Any:
    """A random model of the family with 4 layers, 97 tokens and weights large enough for lively logits, in float32."""
    options = {**_COMMON, **FAMILIES.get(family, {}), **changes}
    config = AutoConfig.for_model(family, **options)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        for parameter in model.parameters():
            if parameter.ndim >= 2:
                torch.nn.init.normal_(parameter, std=0.25)
    return model.eval()


BYTES = 256
END = BYTES
SPECIAL = ("<end>", "<user>", "<assistant>", "<system>")
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<' + message.role + '>' + message.content + '<end>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}"
)


def tiny_tokenizer() -> Any:
    """One token a byte (ids 0 to 255), then the special tokens; a chat template; END ends a text."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate([*alphabet, *SPECIAL])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL))
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<end>",
        extra_special_tokens=list(SPECIAL[1:]),
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def save_tiny(path: str | Path, family: str = "llama", seed: int = 0, chat: bool = True, **changes: Any) -> Path:
    """Save tiny_model with tiny_tokenizer as a Hugging Face directory; chat=False leaves the chat template out."""
    tokenizer = tiny_tokenizer()
    if not chat:
        tokenizer.chat_template = None
    tokenizer.save_pretrained(path)
    options = {"vocab_size": len(tokenizer), "eos_token_id": END, **changes}
    tiny_model(family, seed, **options).save_pretrained(path)
    return Path(path)


def tiny_adapter(
    model: Any, exit_layer: int, inputs: str, depth: int = 1, seed: int = 0, tokenizer: Any | None = None
) -> AdapterFile:
    """An exit adapter of a tiny Llama: copies of its last layer after a random way to fuse what it reads."""
    config = model.config
    width, last = config.hidden_size, f"model.layers.{config.num_hidden_layers - 1}."
    shape = AdapterShape(
        exit_layer=exit_layer,
        inputs=inputs,
        depth=depth,
        hidden_size=width,
        intermediate_size=config.intermediate_size,
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        head_dim=config.head_dim,
        eps=config.rms_norm_eps,
        rope_theta=config.rope_parameters["rope_theta"],
    )
    own = {name: value.detach().clone() for name, value in model.state_dict().items()}
    generator = torch.Generator().manual_seed(seed)
    fuse = torch.randn(width, width * (2 if inputs == "state+token" else 1), generator=generator) / 8
    fuse[:, :width] += torch.eye(width)
    weights = {
        "state_norm.weight": torch.ones(width),
        "fuse.weight": fuse,
        "model.norm.weight": own["model.norm.weight"],
    }
    for name, value in own.items():
        if name.startswith(last):
            for index in range(depth):
                weights[f"model.layers.{index}.{name.removeprefix(last)}"] = value.clone()
    vocabulary = None if tokenizer is None else dict(tokenizer.get_vocab())
    ranking = torch.randperm(config.vocab_size, generator=generator)
    return AdapterFile(shape, identity_of(model, vocabulary), weights, ranking)


def save_tiny_adapter(path: str | Path, model: Any, exit_layer: int, inputs: str, **options: Any) -> Path:
    """Save a tiny_adapter to a directory that isn't there yet."""
    write_adapter(tiny_adapter(model, exit_layer, inputs, **options), Path(path))
    return Path(path)


def tiny_draft(
    model: Any, layers: tuple[int, ...], weights: str = "int8", tokenizer: Any | None = None, **facts: Any
) -> CompactDraft:
    """A compact draft made of some layers of a tiny Llama; facts: those of DraftFacts that are to be others."""
    config = deepcopy(model.config)
    keep_layers(config, layers)
    own = {name: value.detach() for name, value in model.named_parameters()}
    kept = {"model.norm.weight": own["model.norm.weight"]}
    for place, layer in enumerate(layers):
        first = f"model.layers.{layer}."
        kept |= {
            name.replace(first, f"model.layers.{place}."): value
            for name, value in own.items()
            if name.startswith(first)
        }
    told: dict[str, Any] = {
        "name": "tiny",
        "target": identity_of(model, None if tokenizer is None else dict(tokenizer.get_vocab())),
        "target_name": "the tiny model",
        "weights": weights,
        "activations": 16,
        "vocabulary": config.vocab_size,
        "config": json.loads(config.to_json_string(use_diff=False)),
        "license": "Apache-2.0",
        "trained": {"acceptance": [0.5, 0.25]},
    }
    tensors = {**compacted(kept, weights), RANKING: torch.arange(config.vocab_size).int()}
    return CompactDraft(DraftFacts(**{**told, **facts}), tensors)


def save_tiny_draft(path: str | Path, model: Any, layers: tuple[int, ...], **given: Any) -> Path:
    """Save a tiny_draft, named as its directory, which isn't there yet."""
    path = Path(path)
    write_compact(tiny_draft(model, layers, **{"name": path.name, **given}), path, "A draft for tests.\n")
    return path


def save_tiny_head(
    path: str | Path, pair: Pair, width: int, depth: int = 1, seed: int = 0, threshold: float = 0.5
) -> Path:
    """Save a random acceptance head of a pair, for hidden states of this width, to a directory that isn't there yet."""
    generator = torch.Generator().manual_seed(seed)
    weights = {
        "scale": torch.ones(1),
        "out.weight": torch.randn(2, width, generator=generator),
        "out.bias": torch.zeros(2),
    }
    for block in range(depth):
        weights[f"blocks.{block}.weight"] = torch.randn(width, width, generator=generator) / width**0.5
        weights[f"blocks.{block}.bias"] = torch.zeros(width)
    write_classifier_head(ACCEPTANCE, ClassifierHeadFile(pair, weights, threshold, reject_weight=6.0), Path(path))
    return Path(path)


def save_tiny_classifier(path: str | Path, pair: Pair, top: int = 4, seed: int = 0, threshold: float = 0.5) -> Path:
    """Save a random lookahead classifier of a pair to a directory that isn't there yet."""
    generator = torch.Generator().manual_seed(seed)
    weights = {
        "mean": torch.zeros(top + 2),
        "deviation": torch.ones(top + 2),
        "in.weight": torch.randn(8, top + 2, generator=generator),
        "in.bias": torch.zeros(8),
        "out.weight": torch.randn(1, 8, generator=generator),
        "out.bias": torch.zeros(1),
    }
    write_classifier_head(LOOKAHEAD, ClassifierHeadFile(pair, weights, threshold), Path(path))
    return Path(path)
