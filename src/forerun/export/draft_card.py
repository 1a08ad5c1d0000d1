"""The model card of a compact draft, in the form that the Hugging Face hub reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..models.files.compact_draft import DraftFacts


def card_of(facts: DraftFacts, about: str = "") -> str:
    """The text of README.md. about: a paragraph on the data and the figures, by who trained it."""
    return "\n".join([*_front(facts), "", *_body(facts, about), *_training(facts.trained), ""])


def _front(facts: DraftFacts) -> list[str]:
    return [
        "---",
        f"license: {facts.license.lower()}",
        f"base_model: {facts.target_name}",
        "base_model_relation: adapter",
        "library_name: forerun",
        "tags: [speculative-decoding, draft-model]",
        "---",
    ]


def _body(facts: DraftFacts, about: str) -> Iterator[str]:
    yield f"# {facts.name}"
    yield ""
    yield (
        f"A draft model for speculative decoding with {facts.target_name}: {facts.layers} decoder layers in {facts.weights} "
        f"that read {facts.target_name}'s own embeddings and speak through its own head, which are not part of this file. "
        f"It drafts among {facts.vocabulary} tokens. The text stays the target's own: drafts change its speed alone."
    )
    yield ""
    yield f"    forerun generate {facts.target_name} PROMPT --drafter draft_model --drafter-model {facts.name}"
    if about:
        yield ""
        yield about
    yield ""
    yield f"Licence: {facts.license}."
    if facts.acceptance:
        yield ""
        yield "## Figures"
        yield ""
        yield (
            "The share of drafted tokens that are the target's own choice, on its greedy answers to prompts held out of "
            "training, by place in the draft, where the ones before were right; before its weights were made small:"
        )
        yield ""
        yield "| place | " + " | ".join(str(place + 1) for place in range(len(facts.acceptance))) + " |"
        yield "|---" * (1 + len(facts.acceptance)) + "|"
        yield "| right | " + " | ".join(f"{share:.2f}" for share in facts.acceptance) + " |"


def _training(trained: Mapping[str, Any]) -> Iterator[str]:
    """What the training run wrote down of itself."""
    told = [
        ("layers of the target that it began with", _listed(trained.get("shape", {}).get("layers"))),
        ("steps", trained.get("steps")),
        ("answers held out", trained.get("held_out")),
        ("data (fingerprint)", trained.get("data")),
        *trained.get("recipe", {}).items(),
    ]
    rows = [f"| {name} | {value} |" for name, value in told if value is not None]
    if rows:
        yield from ("", "## Training", "", "Trained by `forerun train draft`.", "", "| | |", "|---|---|", *rows)


def _listed(values: Any) -> str | None:
    return None if values is None else ", ".join(map(str, values))
