"""A trained draft without what it shares with its target: its layers, its last norm, and what it is.

Embeddings and head are the target's own, so the file is a small part of a checkpoint. It is one safetensors file, whose
metadata say what it holds, and a model card beside it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from math import prod
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ...core.identity import Identity
from ...errors import InvalidModelFile, ModelNotFound
from .saved import published

FORMAT, VERSION = "forerun compact draft", 1
FILE, CARD = "compact_draft.safetensors", "README.md"
RANKING = "ranking"
_KEY = "forerun"  # of the metadata


@dataclass(frozen=True, slots=True)
class DraftFacts:
    """What a compact draft is. weights: the form of its matrices. activations: in how many bits it reads rows natively.

    vocabulary: among how many tokens it drafts. config: of the draft, as transformers writes it. trained: as in DraftFile.
    digest tells its tensors.
    """

    name: str
    target: Identity
    target_name: str
    weights: str
    activations: int
    vocabulary: int
    config: Mapping[str, Any]
    license: str
    trained: Mapping[str, Any]
    digest: str = ""

    @property
    def layers(self) -> int:
        return int(self.config["num_hidden_layers"])

    @property
    def acceptance(self) -> tuple[float, ...]:
        """On answers held out of training, by place in the draft; empty where it wasn't measured."""
        return tuple(map(float, self.trained.get("acceptance", ())))

    @property
    def expected(self) -> float:
        """Tokens of a draft that are right, as the acceptance says."""
        return sum(prod(self.acceptance[: place + 1]) for place in range(len(self.acceptance)))

    def near(self, other: Identity) -> bool:
        """Whether it was trained for other weights of a model of this shape and tokenizer, as a fine-tuned one has."""
        alike = replace(self.target, weights=other.weights).difference(other) is None
        known = bool(self.target.vocabulary and other.vocabulary)
        return alike and known and self.target.weights != other.weights

    def check_target(self, other: Identity) -> None:
        """Raises ValueError where it belongs to a model of another shape or tokenizer."""
        reason = self.target.difference(other)
        if reason and not self.near(other):
            raise ValueError(
                f"the draft {self.name} was trained for another model, {self.target_name}: that one's {reason}; "
                "forerun drafts MODEL lists what is known for a model"
            )


@dataclass(frozen=True, slots=True, eq=False)
class CompactDraft:
    """tensors: what the layers and the last norm hold, under transformers' names, and RANKING, as in DraftFile."""

    facts: DraftFacts
    tensors: Mapping[str, Tensor]


def write_compact(draft: CompactDraft, directory: Path, card: str) -> DraftFacts:
    """What was written. Raises ValueError where that fails or the directory is there already."""
    if directory.exists():
        raise ValueError(f"{directory} is there already; name another directory")
    tensors = {name: tensor.contiguous() for name, tensor in draft.tensors.items()}
    facts = replace(draft.facts, digest=_digest(tensors))
    told = {"format": FORMAT, "version": VERSION, **asdict(facts)}
    with published(directory, f"the compact draft to {directory}") as partial:
        save_file(tensors, partial / FILE, {_KEY: json.dumps(told)})
        (partial / CARD).write_text(card, encoding="utf-8")
    return facts


def is_compact(directory: Path) -> bool:
    return (directory / FILE).is_file()


def read_facts(directory: Path) -> DraftFacts:
    """What lies in a directory, of which only the header is read.

    Raises ModelNotFound, and InvalidModelFile on a file that is none of ours, truncated, or of a newer version.
    """
    with _opened(directory) as file:
        return _facts(file)


def read_compact(directory: Path) -> CompactDraft:
    """Raises what read_facts raises, and InvalidModelFile where bytes are not those that were written."""
    with _opened(directory) as file:
        facts = _facts(file)
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no mapping
        if _digest(tensors) != facts.digest:
            raise ValueError("its tensors are not those that were written")
        if RANKING not in tensors:
            raise ValueError(f"it holds no {RANKING} of tokens")
        return CompactDraft(facts, tensors)


@contextmanager
def _opened(directory: Path) -> Iterator[Any]:
    if not is_compact(directory):
        raise ModelNotFound(f"no compact draft at {directory}: there is no {FILE}")
    try:
        with safe_open(directory / FILE, "pt") as file:
            yield file
    except (OSError, KeyError, TypeError, ValueError, SafetensorError) as error:
        raise InvalidModelFile(f"{directory} holds no compact draft that can be read: {error}") from error


def _facts(file: Any) -> DraftFacts:
    """Raises ValueError or KeyError where the metadata don't tell."""
    told = json.loads((file.metadata() or {}).get(_KEY, "{}"))
    found = told.get("format"), told.get("version")
    if found != (FORMAT, VERSION):
        raise ValueError(f"format {found[0]!r}, version {found[1]}; this release reads {FORMAT!r}, version {VERSION}")
    values = {field.name: told[field.name] for field in fields(DraftFacts)}
    return DraftFacts(**{**values, "target": Identity.from_dict(values["target"])})


def _digest(tensors: Mapping[str, Tensor]) -> str:
    """16 hex digits of every byte."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]
