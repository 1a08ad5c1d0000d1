"""A fingerprint of a model: whether its weights and vocabulary are the ones that a file was made for.

It hashes a few values of every parameter, rounded to bfloat16. So a checkpoint has the same identity in float32 and in
bfloat16, and any training changes it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import torch
from torch import nn

SAMPLES = 64


@dataclass(frozen=True, slots=True)
class Identity:
    """weights and vocabulary are 16 hex digits; vocabulary is "" where there is no tokenizer."""

    family: str
    num_layers: int
    hidden_size: int
    vocab_size: int
    weights: str
    vocabulary: str = ""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Identity:
        """Raises ValueError on a value that is missing."""
        names = [field.name for field in fields(cls)]
        for name in names:
            if name not in values:
                raise ValueError(f"the identity of a model needs {', '.join(names)}; {name} is missing")
        return cls(**{name: values[name] for name in names})

    def difference(self, other: Identity) -> str | None:
        """What differs, in a few words; None for the same model. A missing tokenizer is no difference."""
        for field in fields(self):
            mine, its = getattr(self, field.name), getattr(other, field.name)
            if mine != its and not (field.name == "vocabulary" and "" in (mine, its)):
                return f"{field.name} is {mine} here and {its} there"
        return None


@dataclass(frozen=True, slots=True)
class Pair:
    """A target and a drafter. drafter is the drafter's identity, "" if unknown."""

    target: Identity
    drafter: str

    def as_dict(self) -> dict[str, Any]:
        return {"target": self.target.as_dict(), "drafter": self.drafter}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Pair:
        """Raises ValueError on a value that is missing."""
        if not {"target", "drafter"} <= values.keys():
            raise ValueError(f"a pair needs a target and a drafter, got {', '.join(values) or 'nothing'}")
        return cls(Identity.from_dict(values["target"]), str(values["drafter"]))

    def check(self, other: Pair, what: str) -> None:
        """Raises ValueError if a file that was trained for this pair is used with another."""
        if reason := self.target.difference(other.target):
            raise ValueError(f"the {what} was trained for another target: its {reason}")
        if self.drafter != other.drafter:
            told = other.drafter or "one that can't be told"
            raise ValueError(
                f"the {what} was trained for another drafter: {self.drafter} there, {told} here; train one"
            )


def identity_of(model: nn.Module, vocabulary: Mapping[str, int] | None) -> Identity:
    """The identity of a transformers model, whose weights must still be there, and of its tokenizer's token -> id."""
    config: Any = model.config
    text = config.get_text_config()
    return Identity(
        family=str(text.model_type),
        num_layers=int(text.num_hidden_layers),
        hidden_size=int(text.hidden_size),
        vocab_size=int(text.vocab_size),
        weights=digest_of(dict(model.named_parameters())),
        vocabulary="" if vocabulary is None else digest_of_vocabulary(vocabulary),
    )


def digest_of(tensors: Mapping[str, torch.Tensor]) -> str:
    """16 hex digits of named tensors, the same in float32 and in bfloat16."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tuple(tensor.shape)}".encode())
        digest.update(_some(tensor.detach()))
    return digest.hexdigest()[:16]


def _some(values: torch.Tensor) -> bytes:
    flat = values.reshape(-1)
    picked = flat[:: max(1, flat.numel() // SAMPLES)][:SAMPLES]
    return picked.to(torch.bfloat16).contiguous().view(torch.uint8).cpu().numpy().tobytes()


def digest_of_vocabulary(vocabulary: Mapping[str, int]) -> str:
    """16 hex digits of a tokenizer's token -> id."""
    digest = hashlib.sha256()
    for token, token_id in sorted(vocabulary.items(), key=lambda item: item[1]):
        digest.update(f"{token_id} {token}\n".encode(errors="surrogatepass"))
    return digest.hexdigest()[:16]
