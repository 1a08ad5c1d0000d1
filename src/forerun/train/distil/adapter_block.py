"""The exit adapter as a torch module: a fused input, Llama blocks, a norm; the base model's head reads its output.

A pass attends to the keys and values of earlier passes, so that training matches drafting: a draft's first row follows rows
of true states, its second one also a row of the adapter's own state, and so on. Sources: Li et al., EAGLE, arXiv 2401.15077
(states and next tokens); Zhang et al., HASS, arXiv 2408.15766 (training on own states).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...models.files.adapter import AdapterShape

Past = list[tuple[Tensor, Tensor]]


@final
class Norm(nn.Module):
    """RMS norm in float32, whatever autocast makes of the rest."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self._eps = eps

    def forward(self, x: Tensor) -> Tensor:
        normed: Tensor = F.rms_norm(x.float(), self.weight.shape, self.weight, self._eps)
        return normed


@final
class AdapterBlock(nn.Module):
    """A Llama block. past holds its keys and values [B, heads, T, head_dim] of the passes before, oldest first."""

    def __init__(self, shape: AdapterShape) -> None:
        super().__init__()
        self._shape = shape
        width, inner = shape.hidden_size, shape.intermediate_size
        self.input_layernorm = Norm(width, shape.eps)
        self.post_attention_layernorm = Norm(width, shape.eps)
        self.self_attn = nn.ModuleDict(
            {
                "q_proj": nn.Linear(width, shape.heads * shape.head_dim, bias=False),
                "k_proj": nn.Linear(width, shape.kv_heads * shape.head_dim, bias=False),
                "v_proj": nn.Linear(width, shape.kv_heads * shape.head_dim, bias=False),
                "o_proj": nn.Linear(shape.heads * shape.head_dim, width, bias=False),
            }
        )
        self.mlp = nn.ModuleDict(
            {
                "gate_proj": nn.Linear(width, inner, bias=False),
                "up_proj": nn.Linear(width, inner, bias=False),
                "down_proj": nn.Linear(inner, width, bias=False),
            }
        )

    def forward(self, x: Tensor, turns: tuple[Tensor, Tensor], past: Past) -> Tensor:
        x = x + self._attend(self.input_layernorm(x), turns, past)
        y = self.post_attention_layernorm(x)
        gated: Tensor = F.silu(self.mlp["gate_proj"](y)) * self.mlp["up_proj"](y)
        out: Tensor = x + self.mlp["down_proj"](gated)
        return out

    def _attend(self, x: Tensor, turns: tuple[Tensor, Tensor], past: Past) -> Tensor:
        width = self._shape.head_dim

        def heads(name: str) -> Tensor:
            rows = self.self_attn[name](x)
            split: Tensor = rows.unflatten(-1, (rows.shape[-1] // width, width)).transpose(1, 2)
            return split

        group = self._shape.heads // self._shape.kv_heads
        queries, keys = _turned(heads("q_proj"), turns), _turned(heads("k_proj"), turns)
        past.append((keys.repeat_interleave(group, 1), heads("v_proj").repeat_interleave(group, 1)))
        mixed = _read(queries, past).transpose(1, 2).flatten(2)
        out: Tensor = self.self_attn["o_proj"](mixed)
        return out


def _turned(x: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
    cos, sin = turns
    one, other = x.chunk(2, -1)
    return torch.cat([one * cos - other * sin, other * cos + one * sin], -1).to(x.dtype)


def _read(queries: Tensor, past: Past) -> Tensor:
    """Row t of pass j sees the first pass's rows up to t - j, then row t - j + i of pass i, up to its own."""
    if len(past) == 1:
        return F.scaled_dot_product_attention(queries, *past[0], is_causal=True)
    own = len(past) - 1
    length, scale = queries.shape[2], queries.shape[3] ** -0.5
    places = torch.arange(length, device=queries.device)
    first = (queries * scale) @ past[0][0].mT
    first = first.masked_fill(places > (places - own)[:, None], -torch.inf)
    later = [(queries * scale * _later(keys, own - i)).sum(-1, keepdim=True) for i, (keys, _) in enumerate(past) if i]
    # the rows before the first that such a draft could reach see themselves alone
    early = [places[:, None] < own - i for i in range(1, len(past))]
    scores = [first, *(score.masked_fill(out, -torch.inf) for score, out in zip(later, early, strict=True))]
    shares = torch.cat(scores, -1).float().softmax(-1).to(queries.dtype)
    mixed = shares[..., :length] @ past[0][1]
    for i in range(1, len(past)):
        mixed = mixed + shares[..., length + i - 1, None] * _later(past[i][1], own - i)
    return mixed


def _later(rows: Tensor, steps: int) -> Tensor:
    """Row t is what was row t - steps."""
    return F.pad(rows, (0, 0, steps, 0))[:, :, : rows.shape[2]]


@final
class ExitAdapter(nn.Module):
    """states [B, T, D] and embeddings [B, T, D] in, states [B, T, D] of its own out, which stand for the base's last ones.

    norm makes of them what the base's output head reads.
    """

    def __init__(self, shape: AdapterShape) -> None:
        super().__init__()
        self.shape = shape
        parts = 2 if shape.inputs == "state+token" else 1
        self.state_norm = Norm(shape.hidden_size, shape.eps)
        self.fuse = nn.Linear(parts * shape.hidden_size, shape.hidden_size, bias=False)
        self.layers = nn.ModuleList(AdapterBlock(shape) for _ in range(shape.depth))
        self.norm = Norm(shape.hidden_size, shape.eps)

    def forward(self, states: Tensor, embeddings: Tensor | None, past: list[Past]) -> Tensor:
        """embeddings are those of the next tokens, None for inputs "state".

        past has a list for each layer, which grows by one pass; empty lists begin anew.
        """
        own = self.state_norm(states)
        x = self.fuse(own if embeddings is None else torch.cat([own, embeddings], -1))
        turns = self._turns(x.shape[1], x.device)
        for layer, kept in zip(self.layers, past, strict=True):
            x = layer(x, turns, kept)
        out: Tensor = x
        return out

    def _turns(self, length: int, device: torch.device) -> tuple[Tensor, Tensor]:
        half = torch.arange(0, self.shape.head_dim, 2, device=device).float() / self.shape.head_dim
        angles = torch.arange(length, device=device).float()[:, None] * self.shape.rope_theta**-half
        return angles.cos(), angles.sin()

    def named_weights(self) -> dict[str, Tensor]:
        """Under the names that an adapter's file has them by."""
        return {_outer(name): value.detach() for name, value in self.state_dict().items()}

    def take_weights(self, weights: Mapping[str, Tensor]) -> None:
        self.load_state_dict({name: weights[_outer(name)] for name in self.state_dict()})


def _outer(name: str) -> str:
    return f"model.{name}" if name.startswith(("layers.", "norm.")) else name
