"""The shape of a draft model, cut from its target's: how deep, how wide, and among how many tokens it drafts.

Depth costs most where a layer has a fixed price, width where bytes decide: which of the two a machine has is measured, not
assumed. Source: Yan et al., arXiv 2402.01528.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, fields, replace
from typing import Any

from ...errors import UnsupportedOption
from ..packed.limits import head_dim_of


@dataclass(frozen=True, slots=True)
class DraftShape:
    """width is the hidden size, mlp the MLP's inner size. Heads are as wide as the target's.

    vocabulary: how many tokens the head tells apart while drafting; the checkpoint's own head holds them all.
    """

    layers: int
    width: int
    mlp: int
    heads: int
    kv_heads: int
    vocabulary: int

    @classmethod
    def of(cls, config: Any) -> DraftShape:
        """A model's own shape, from its text configuration."""
        heads = int(config.num_attention_heads)
        return cls(
            layers=int(config.num_hidden_layers),
            width=int(config.hidden_size),
            mlp=int(getattr(config, "intermediate_size", 0) or 4 * config.hidden_size),
            heads=heads,
            kv_heads=int(getattr(config, "num_key_value_heads", 0) or heads),
            vocabulary=int(config.vocab_size),
        )

    @classmethod
    def parse(cls, text: str, config: Any) -> DraftShape:
        """`layers=4,width=384`; what is not named is the target's, kv_heads in the target's proportion to heads.

        Raises UnsupportedOption on an unknown name or a value that is no whole number.
        """
        known = [field.name for field in fields(cls)]
        given: dict[str, int] = {}
        for part in filter(None, (part.strip() for part in text.split(","))):
            name, _, value = part.partition("=")
            if name not in known:
                raise UnsupportedOption(f"unknown part {name!r} of a shape; known: {', '.join(known)}")
            if not value.isdecimal():
                raise UnsupportedOption(f"{name} of a shape must be a whole number from 1 on, got {value!r}")
            given[name] = int(value)
        own = cls.of(config)
        if "heads" in given and "kv_heads" not in given:
            given["kv_heads"] = max(1, given["heads"] * own.kv_heads // own.heads)
        return replace(own, **given)

    @property
    def name(self) -> str:
        """As parse reads it."""
        return ",".join(f"{field.name}={getattr(self, field.name)}" for field in fields(self))

    def check(self, config: Any) -> None:
        """Raise UnsupportedOption unless a draft of this shape can be begun from the target's weights."""
        own = self.of(config)
        for field in fields(self):
            value, most = getattr(self, field.name), getattr(own, field.name)
            if not 1 <= value <= most:
                raise UnsupportedOption(
                    f"a draft's {field.name} must be in 1..{most}, for it begins with the target's weights; got {value}"
                )
        if self.heads * own.kv_heads != self.kv_heads * own.heads:
            raise UnsupportedOption(
                f"a draft's heads must keep the target's {own.heads // own.kv_heads} queries for each key, got {self.heads} "
                f"heads and {self.kv_heads} kv_heads"
            )

    def config(self, config: Any, chosen: Sequence[int]) -> Any:
        """The target's text configuration in this shape; chosen: the target's layers that the draft's come from."""
        own = deepcopy(config)
        # said before the width changes what it would be by default
        own.head_dim = head_dim_of(config)
        keep_layers(own, chosen)
        own.hidden_size, own.intermediate_size = self.width, self.mlp
        own.num_attention_heads, own.num_key_value_heads = self.heads, self.kv_heads
        return own

    def layer_parameters(self, head_dim: int) -> int:
        """The matrices of all layers: gated MLPs, and attention with heads of this width."""
        attention = 2 * (self.heads + self.kv_heads) * head_dim * self.width
        return self.layers * (attention + 3 * self.width * self.mlp)


def keep_layers(config: Any, chosen: Sequence[int]) -> None:
    """Cut a configuration to some of its layers, with every list in it that has an entry for each layer."""
    count = int(config.num_hidden_layers)
    for name, value in config.to_dict().items():
        if isinstance(value, list) and "layer" in name and len(value) == count:
            setattr(config, name, [value[layer] for layer in chosen])
    config.num_hidden_layers = len(chosen)


def spread_layers(count: int, total: int) -> tuple[int, ...]:
    """`count` of a model's layers, the first and the last among them, evenly spread."""
    if count == 1:
        return (total - 1,)
    return tuple(round(place * (total - 1) / (count - 1)) for place in range(count))
