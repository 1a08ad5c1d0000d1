"""A trained draft as an ordinary model with embeddings and a head of its own, as other engines' drafts are.

It comes from a compact draft, which has neither, from a checkpoint of forerun train draft, or from any model whose tokenizer
is the target's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from ..core.identity import identity_of
from ..drafters.draft_model import compare_vocabularies
from ..drafters.vocabulary import first_ranked
from ..errors import InvalidModelFile, UnsupportedModel
from ..models.files.compact_draft import RANKING, read_compact
from ..models.files.draft import read_draft
from ..models.files.known_drafts import compact_directory
from ..models.files.quiet import quiet
from ..models.lean.draft_weights import CompactSource
from ..models.lean.weights import dense
from ..models.loading.load import Module, dtype_of, open_module
from .whole_head import whole_head


@dataclass(frozen=True, slots=True, eq=False)
class Standalone:
    """model: in float32, its head untied where it was cut. said: how many of the vocabulary's tokens it can say."""

    name: str
    model: Any
    target: Module
    said: int
    vocabulary: int


def standalone(
    model: str | Path, draft: str | Path, vocabulary: int | None = None, dtype: str | None = None
) -> Standalone:
    """A draft by name, directory or model name, for this model, which is opened in dtype.

    vocabulary: among how many tokens it drafts, 0: all; its own number if None. Raises ValueError where it was made for
    another model, UnsupportedModel or UnsupportedOption where it can't run with it, what open_module and read_compact raise.
    """
    target = open_module(model, dtype=dtype_of(dtype) or torch.bfloat16, device="cpu")
    compact = compact_directory(draft)
    own, ranking, size = _of_compact(compact, target) if compact is not None else _of_checkpoint(draft, target)
    rows = len(own.get_output_embeddings().weight)
    wanted = len(target.model.get_output_embeddings().weight)
    if rows != wanted:
        raise UnsupportedModel(
            f"the draft {draft} has a vocabulary of {rows} and {target.name} one of {wanted}; vLLM's draft_model "
            "and transformers' assistant_model need the same"
        )
    size = (size if vocabulary is None else vocabulary) or rows
    if size < rows:
        tokens = first_ranked((token for token in ranking if token < rows), size, rows)
        _put_head(own, whole_head(own, tokens, str(draft)))
    own.generation_config = target.model.generation_config
    return Standalone(Path(draft).name, own, target, size, rows)


def _of_compact(directory: Path, target: Module) -> tuple[Any, Sequence[int], int]:
    """The draft's layers between copies of the target's tables, its ranking, and how many tokens it tells apart."""
    read = read_compact(directory)
    read.facts.check_target(identity_of(target.model, target.vocabulary))
    config = AutoConfig.for_model(**read.facts.config)
    with quiet():
        own = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    tensors = {name: tensor for name, tensor in read.tensors.items() if name != RANKING}
    source = CompactSource(tensors, torch.float32, torch.device("cpu"), 0.0)
    tables = {id(own.get_input_embeddings().weight), id(own.get_output_embeddings().weight)}
    with torch.no_grad():
        for name, parameter in own.named_parameters():
            if id(parameter) not in tables:
                parameter.copy_(dense(source.take(name)))
        own.get_input_embeddings().weight.copy_(target.model.get_input_embeddings().weight)
        own.get_output_embeddings().weight.copy_(target.model.get_output_embeddings().weight)
    if left := source.left():
        raise InvalidModelFile(f"the draft {read.facts.name} holds a weight {left[0]} that has no place in it")
    return own, read.tensors[RANKING].tolist(), read.facts.vocabulary


def _of_checkpoint(draft: str | Path, target: Module) -> tuple[Any, Sequence[int], int]:
    opened = open_module(draft, dtype=torch.float32, device="cpu")
    if opened.vocabulary is not None and target.vocabulary is not None:
        shared = min(len(one.model.get_output_embeddings().weight) for one in (opened, target))
        compare_vocabularies(target.vocabulary, opened.vocabulary, shared, opened.name)
    file = read_draft(draft)
    own = opened.model.eval()
    return (own, (), 0) if file is None else (own, file.ranking.tolist(), file.vocabulary)


def _put_head(model: Any, weight: torch.Tensor) -> None:
    head = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False)
    head.weight = torch.nn.Parameter(weight, requires_grad=False)
    model.config.tie_word_embeddings = False
    model.set_output_embeddings(head)
