"""Initialises a draft model with its target's weights.

Layers are copied. If the draft's layers are smaller, the heads and MLP neurons with the most activation on the target's own
answers are kept. If the draft is narrower, the residual stream is rotated onto its main directions and cut. First a norm's
weight is moved into the matrices after it, so that the rotation alone changes nothing.

Sources: Yan et al., arXiv 2402.01528 (pruned drafts); Ashkboos et al., arXiv 2401.15024 (rotating and cutting the stream).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, final

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from ...errors import UnsupportedModel, UnsupportedOption
from ...models.files.draft_shape import DraftShape
from ...models.packed.layers import decoder_layers
from .activation_statistics import ActivationStatistics

# families whose layers are known to read the stream through a plain norm and to add to it, and nothing else
PRUNED = ("llama", "mistral", "qwen2", "qwen3")


@dataclass(frozen=True, slots=True)
class Cut:
    """What a draft begins with: its shape, and the target's layers that its own come from."""

    shape: DraftShape
    layers: tuple[int, ...]


def narrower(shape: DraftShape, config: Any) -> bool:
    """Whether the shape needs more than leaving layers out."""
    own = DraftShape.of(config)
    return (shape.width, shape.mlp, shape.heads) != (own.width, own.mlp, own.heads)


def check_cut(cut: Cut, config: Any) -> None:
    """Raise UnsupportedOption unless a draft can begin so from a target of this configuration."""
    shape, layers = cut.shape, cut.layers
    shape.check(config)
    if len(layers) != shape.layers or any(not 0 <= layer < config.num_hidden_layers for layer in layers):
        raise UnsupportedOption(
            f"a draft of {shape.layers} layers begins with as many of the target's 0..{config.num_hidden_layers - 1}, got "
            f"{', '.join(map(str, layers))}"
        )
    if narrower(shape, config) and config.model_type not in PRUNED:
        raise UnsupportedOption(
            f"a {config.model_type} draft can only have fewer layers and tokens; width, mlp and heads can be cut for "
            f"{', '.join(PRUNED)}"
        )


def new_draft(model: Any, cut: Cut, seen: ActivationStatistics | None) -> Any:
    """A transformers model in float32 that begins so; the target stays as it is.

    seen is needed where the draft is narrower. Raises what check_cut raises, and UnsupportedModel where layers aren't alike.
    """
    config = model.config.get_text_config()
    check_cut(cut, config)
    shape, layers = cut.shape, cut.layers
    own = shape.config(config, layers)
    weights = _parts(model)
    if seen is not None:
        # its head has the norm's weight in it, its embeddings don't
        own.tie_word_embeddings = own.tie_word_embeddings and shape.width == config.hidden_size
        weights = _narrowed(weights, cut, config, seen)
    with torch.random.fork_rng(devices=[]):
        draft: Any = AutoModelForCausalLM.from_config(own, dtype=torch.float32)
    taken = {
        f"{weights.prefix}.{place}.{name}": value
        for place, layer in enumerate(layers)
        for name, value in weights.layers[layer].items()
    }
    if draft.state_dict().keys() != weights.rest.keys() | taken.keys():
        raise UnsupportedModel(
            f"the layers of {type(model).__name__} differ in kind, and {', '.join(map(str, layers))} don't stand in a "
            "shallower one; take layers from the first on"
        )
    draft.load_state_dict({**weights.rest, **taken})
    draft.generation_config = model.generation_config
    return draft


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Parts:
    """A model's weights: each layer's by their names in it, all layers' list by its own, prefix, and the rest."""

    prefix: str
    layers: tuple[Mapping[str, Tensor], ...]
    rest: Mapping[str, Tensor]


def _parts(model: Any) -> _Parts:
    blocks = decoder_layers(model)
    prefix = str(next(name for name, module in model.named_modules() if module is blocks))
    layers: list[dict[str, Tensor]] = [{} for _ in blocks]
    rest: dict[str, Tensor] = {}
    for name, value in model.state_dict().items():
        if name.startswith(f"{prefix}."):
            index, _, inner = name.removeprefix(f"{prefix}.").partition(".")
            layers[int(index)][inner] = value.float()
        else:
            rest[name] = value.float()
    return _Parts(prefix, tuple(layers), rest)


def _narrowed(weights: _Parts, cut: Cut, config: Any, seen: ActivationStatistics) -> _Parts:
    shape = cut.shape
    basis = seen.directions[:, : shape.width] if shape.width < config.hidden_size else None
    kept = list(weights.layers)
    for layer in cut.layers:
        groups = _strongest(seen.groups[layer], shape.kv_heads)
        neurons = _strongest(seen.neurons[layer], shape.mlp)
        kept[layer] = _Layer(weights.layers[layer], groups, neurons, len(seen.groups[layer]), basis).cut()
    if basis is None:
        return replace(weights, layers=tuple(kept))
    rest = dict(weights.rest)
    embeddings, norm = rest["model.embed_tokens.weight"], rest["model.norm.weight"]
    head = rest.get("lm_head.weight", embeddings)
    return _Parts(
        weights.prefix,
        tuple(kept),
        {
            "model.embed_tokens.weight": embeddings @ basis,
            "model.norm.weight": _kept_norm(basis),
            "lm_head.weight": (head * norm) @ basis,
        },
    )


def _strongest(energy: Tensor, count: int) -> Tensor:
    return energy.topk(count).indices.sort().values


def _kept_norm(basis: Tensor) -> Tensor:
    """What makes a narrower stream as large after its norm as its part of the whole stream was."""
    whole, cut = basis.shape
    return torch.full((cut,), (whole / cut) ** 0.5)


@final
class _Layer:
    """A layer's weights by name, and what of it stays: groups of queries and their key, neurons, directions."""

    def __init__(
        self, weights: Mapping[str, Tensor], groups: Tensor, neurons: Tensor, all_groups: int, basis: Tensor | None
    ) -> None:
        self._weights, self._neurons, self._basis = weights, neurons, basis
        self._rows = {
            name: _rows_of(groups, weights[f"self_attn.{name}.weight"].shape[0] // all_groups)
            for name in ("q_proj", "k_proj", "v_proj")
        }

    def cut(self) -> dict[str, Tensor]:
        """Under the same names."""
        return {name: self._one(name, value).contiguous() for name, value in self._weights.items()}

    def _one(self, name: str, value: Tensor) -> Tensor:
        module, _, kind = name.rpartition(".")
        matrix = module.rpartition(".")[2]
        if matrix in self._rows:
            value = value[self._rows[matrix]]
            return self._reads(value, "input_layernorm") if kind == "weight" else value
        if matrix in ("gate_proj", "up_proj"):
            value = value[self._neurons]
            return self._reads(value, "post_attention_layernorm") if kind == "weight" else value
        if matrix in ("o_proj", "down_proj"):
            if kind == "weight":
                value = value[:, self._rows["q_proj"] if matrix == "o_proj" else self._neurons]
            return value if self._basis is None else self._basis.mT @ value
        if matrix in ("input_layernorm", "post_attention_layernorm") and self._basis is not None:
            return _kept_norm(self._basis)
        return value

    def _reads(self, value: Tensor, norm: str) -> Tensor:
        """A matrix that reads the stream through this norm."""
        return value if self._basis is None else (value * self._weights[f"{norm}.weight"]) @ self._basis


def _rows_of(groups: Tensor, width: int) -> Tensor:
    """The rows of these groups, each so wide."""
    return (groups[:, None] * width + torch.arange(width)).flatten()
