"""forerun export: parts of a model for other engines."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from .shared_options import AsJson, Model
from .terminal import note, show, show_json

export = typer.Typer(
    name="export", help="Write a part of a model as a checkpoint for other engines.", no_args_is_help=True
)


@export.callback()
def _group() -> None:
    """Keeps the command's name in use while there is but one."""


@export.command("draft")
def draft(
    model: Model,
    exit_layer: Annotated[int, typer.Option(help="Keep this many layers.", show_default=False)],
    output: Annotated[Path, typer.Option("--output", "-o", help="The new directory to write to.", show_default=False)],
    dtype: Annotated[
        str | None, typer.Option(help="float32, bfloat16 or float16; the checkpoint's own if not given.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write the first layers, the final norm and the head as a draft model, checked to equal the early exit bit for bit."""
    from ..export.draft import export_draft

    note(f"loading {model}")
    written = export_draft(model, exit_layer, output, dtype)
    if as_json:
        show_json({**asdict(written), "directory": str(written.directory)})
        return
    show(
        f"{written.directory}: {written.exit_layer} of {written.num_layers} layers, {written.parameters / 1e6:.1f} million "
        f"parameters, {written.bytes / 1e6:.1f} MB; its logits are those of the early exit, bit for bit"
    )
