"""forerun train compact: a trained draft without what it shares with its target, as one small file."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ..shared_options import AsJson, Model
from ..terminal import note, show, show_json


def compact(
    model: Model,
    checkpoint: Annotated[
        Path, typer.Argument(help="What forerun train draft wrote for this model.", show_default=False)
    ],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="The new directory, whose name is the draft's.", show_default=False),
    ],
    weights: Annotated[str, typer.Option(help="The form of the draft's matrices: int4 or int8.")] = "int4",
    activations: Annotated[int, typer.Option(help="Bits of the rows that its native products take: 8 or 16.")] = 8,
    license: Annotated[str, typer.Option(help="For the model card, as in Apache-2.0.")] = "unknown",
    about: Annotated[
        Path | None, typer.Option(help="A text file for the model card: the data, what was measured.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Keep of a trained draft only what differs from its model, in small weights, with a model card."""
    from ...export.compact import write_compacted

    told = about.read_text(encoding="utf-8").strip() if about is not None else ""
    note(f"loading {model}")
    written = write_compacted(
        model, checkpoint, output, weights=weights, activations=activations, license=license, about=told
    )
    if as_json:
        show_json({"directory": str(written.directory), "bytes": written.bytes, **asdict(written.facts)})
        return
    facts = written.facts
    show(
        f"{written.directory}: {facts.layers} layers in {facts.weights}, {written.bytes / 1e6:.1f} MB; draft with it: "
        f"--drafter draft_model --drafter-model {written.directory}"
    )
