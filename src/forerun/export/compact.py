"""Keeps of a trained draft only what differs from its target: layers in small weights, without embeddings and head."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..core.identity import Identity, identity_of
from ..errors import UnsupportedModel, UnsupportedOption
from ..models.files.compact_draft import FILE, RANKING, CompactDraft, DraftFacts, write_compact
from ..models.files.draft import read_draft
from ..models.lean.draft_weights import compacted
from ..models.lean.shape import lean_applies
from ..models.loading.load import Module, open_module
from ..models.packed.plan import check_activations
from .draft_card import card_of

TABLES = ("model.embed_tokens.weight", "lm_head.weight")


@dataclass(frozen=True, slots=True)
class Compacted:
    """What was written: bytes are those of the weights file."""

    directory: Path
    facts: DraftFacts
    bytes: int


def write_compacted(
    model: str | Path,
    checkpoint: Path,
    directory: Path,
    *,
    weights: str = "int4",
    activations: int = 8,
    license: str = "unknown",
    about: str = "",
) -> Compacted:
    """Compact a checkpoint of `forerun train draft`, made for this model; about: a paragraph of the model card.

    Raises ValueError where the draft was trained for another model, holds embeddings or a head of its own, or the directory
    is there; UnsupportedModel where the lean decoder, which runs compact drafts, can't run it; and what open_module raises.
    """
    check_activations(activations)
    file = read_draft(checkpoint)
    if file is None or "base" not in file.trained:
        raise ValueError(f"{checkpoint} holds no draft of forerun train draft; compact drafts are made of such alone")
    target, draft = (open_module(one, dtype=torch.bfloat16, device="cpu") for one in (model, checkpoint))
    identity = identity_of(target.model, target.vocabulary)
    if reason := Identity.from_dict(file.trained["base"]).difference(identity):
        raise ValueError(f"{checkpoint} was trained for another model than {target.name}: its {reason}")
    config = draft.model.config
    if reason := lean_applies(config):
        raise UnsupportedModel(f"the lean decoder, which compact drafts run on, can't run {checkpoint}: {reason}")
    _check_tables(draft, target)
    facts = DraftFacts(
        name=directory.name,
        target=identity,
        target_name=target.name,
        weights=weights,
        activations=activations,
        vocabulary=file.vocabulary,
        config=_told(config),
        license=license,
        trained=file.trained,
    )
    tensors = {**compacted(_own(draft.model), weights), RANKING: file.ranking.int()}
    facts = write_compact(CompactDraft(facts, tensors), directory, card_of(facts, about))
    return Compacted(directory, facts, (directory / FILE).stat().st_size)


def _check_tables(draft: Module, target: Module) -> None:
    """Raises UnsupportedOption unless embeddings and head are the target's, number for number."""
    own, its = draft.model.config, target.model.config.get_text_config()
    if own.hidden_size != its.hidden_size:
        raise UnsupportedOption(
            f"{draft.name} is {own.hidden_size} wide and {target.name} {its.hidden_size}, so its embeddings are its own; "
            "only a draft of its target's width can do without them: use the checkpoint as it is"
        )
    for what, mine, theirs in (
        ("embeddings", draft.model.get_input_embeddings(), target.model.get_input_embeddings()),
        ("an output head", draft.model.get_output_embeddings(), target.model.get_output_embeddings()),
    ):
        if not torch.equal(mine.weight, theirs.weight):
            raise UnsupportedOption(
                f"{draft.name} has {what} other than those of {target.name}, which a compact draft takes in their place; "
                "use the checkpoint as it is"
            )


def _own(model: Any) -> Mapping[str, Tensor]:
    """The weights between the tables, under their names."""
    return {name: value.detach() for name, value in model.named_parameters() if name not in TABLES}


def _told(config: Any) -> dict[str, Any]:
    """The configuration as JSON holds it, without where it was read from."""
    told: dict[str, Any] = json.loads(config.to_json_string(use_diff=False))
    return {name: value for name, value in told.items() if not name.startswith("_")}
