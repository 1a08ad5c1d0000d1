"""forerun drafts: the trained drafts and tables of n-grams that are known here, for any model or for one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..shared_options import AsJson
from ..terminal import note, show, show_json, show_table

if TYPE_CHECKING:
    from ...core.identity import Identity
    from ...models.files.known_drafts import KnownDraft


def drafts(
    model: Annotated[
        str,
        typer.Argument(
            metavar="[MODEL]", help="Only those for this model: a bundled name, a directory, a GGUF file or a hub name."
        ),
    ] = "",
    as_json: AsJson = False,
) -> None:
    """List the trained drafts that are known here, for every model or for one; FORERUN_DRAFTS names folders of your own."""
    from ...models.files.known_drafts import draft_folders, find_drafts
    from ...models.files.known_tables import find_tables
    from .known_ngrams import described, show_tables

    target = _identity(model) if model else None
    found = find_drafts()
    listed = list(found.drafts) if target is None else found.fitting(target)
    found_tables = find_tables()
    tables = list(found_tables.tables) if target is None else found_tables.fitting(target)
    folders = {str(folder): folder.is_dir() for folder in draft_folders()}
    unreadable = {str(path): reason for path, reason in (found.unreadable | found_tables.unreadable).items()}
    for reason in unreadable.values():
        note(reason)
    if as_json:
        known = {"drafts": [_described(one, target) for one in listed], "tables": [described(one) for one in tables]}
        show_json({**known, "folders": folders, "unreadable": unreadable})
        return
    if listed:
        head = ("draft", "for", "what it is", "right by place", "from", "licence")
        show_table(head, [_row(one) for one in listed])
        for one in listed:
            if target is not None and one.facts.near(target):
                show(
                    f"{one.name} was trained for other weights of this shape and tokenizer: fewer of its tokens may be "
                    "right."
                )
        show(f"Draft with one: --drafter draft_model --drafter-model {listed[0].name}")
    else:
        show(f"No trained draft is known{f' for {model}' if model else ''}; make one with: forerun train draft")
    if tables:
        show_tables(tables)
    for folder, there in folders.items():
        show(f"searched: {folder}{'' if there else ' (not there)'}")


def _identity(model: str) -> Identity:
    from ...core.identity import identity_of
    from ...models.loading.load import open_module

    note(f"loading {model}")
    module = open_module(model, device="cpu")
    return identity_of(module.model, module.vocabulary)


def _row(one: KnownDraft) -> tuple[str, ...]:
    facts = one.facts
    return (
        one.name,
        facts.target_name,
        f"{facts.layers} layers, {facts.weights}, {facts.vocabulary} tokens, {one.nbytes / 1e6:.1f} MB",
        " ".join(f"{share:.2f}" for share in facts.acceptance) or "not measured",
        one.source,
        facts.license,
    )


def _described(one: KnownDraft, target: Identity | None) -> dict[str, Any]:
    facts = one.facts
    return {
        "name": one.name,
        "directory": str(one.directory),
        "source": one.source,
        "bytes": one.nbytes,
        "layers": facts.layers,
        "weights": facts.weights,
        "activations": facts.activations,
        "vocabulary": facts.vocabulary,
        "target": facts.target_name,
        "target_identity": facts.target.as_dict(),
        "same_weights": None if target is None else not facts.near(target),
        "acceptance": list(facts.acceptance),
        "license": facts.license,
    }
