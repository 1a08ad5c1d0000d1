"""forerun export: drafts for other engines."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .shared_options import AsJson, Model
from .terminal import note, show, show_json

if TYPE_CHECKING:
    from ..export.draft import Exported
    from ..export.engine_draft import EngineDraft

export = typer.Typer(name="export", help="Write a draft model for other engines.", no_args_is_help=True)


@export.callback()
def _group() -> None:
    """Keeps the command's name in use while there is but one."""


@export.command("draft")
def draft(
    model: Model,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="The new directory, or NAME.gguf for llama.cpp.", show_default=False),
    ],
    exit_layer: Annotated[int | None, typer.Option(help="Write this many layers of the model itself.")] = None,
    of: Annotated[
        str | None,
        typer.Option(
            "--draft",
            help="Write this draft of the model: one of forerun drafts, or a directory of forerun train draft.",
        ),
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(help="float32, bfloat16 or float16; if not given the model's own, bfloat16 with --draft."),
    ] = None,
    vocabulary: Annotated[
        int | None,
        typer.Option(help="With --draft: draft among this many tokens, 0: all; its own number if not given."),
    ] = None,
    gguf_weights: Annotated[
        str | None, typer.Option(help="Of NAME.gguf: f32, f16, q8_0 or q4_0; f16 if not given.")
    ] = None,
    gguf_target: Annotated[
        Path | None, typer.Option(help="For NAME.gguf: the model's own GGUF file, where MODEL isn't one.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a draft model for vLLM and transformers (a directory) or for llama.cpp (NAME.gguf).

    With --exit-layer: the first layers, the final norm and the head of the model, checked to equal its early exit bit for
    bit. With --draft: a trained draft as a model of its own, checked as the engines check it, and how they are started.
    """
    from ..export.draft import export_draft
    from ..export.engine_draft import export_for_engines

    if (exit_layer is None) == (of is None):
        raise ValueError("name what to write: --exit-layer LAYERS of the model itself, or a trained --draft")
    if exit_layer is not None:
        only = {"--vocabulary": vocabulary, "--gguf-weights": gguf_weights, "--gguf-target": gguf_target}
        for name in (name for name, value in only.items() if value is not None):
            raise ValueError(f"{name} belongs to --draft; leave it out with --exit-layer")
    note(f"loading {model}")
    if exit_layer is not None:
        _tell_exit(export_draft(model, exit_layer, output, dtype), as_json)
        return
    assert of is not None
    given: dict[str, Any] = {
        "vocabulary": vocabulary,
        "dtype": dtype,
        "weights": gguf_weights,
        "gguf_target": gguf_target,
    }
    _tell_draft(export_for_engines(model, of, output, **given), as_json)


def _tell_exit(written: Exported, as_json: bool) -> None:
    if as_json:
        show_json({**asdict(written), "directory": str(written.directory)})
        return
    show(
        f"{written.directory}: {written.exit_layer} of {written.num_layers} layers, {written.parameters / 1e6:.1f} million "
        f"parameters, {written.bytes / 1e6:.1f} MB; its logits are those of the early exit, bit for bit"
    )


def _tell_draft(made: EngineDraft, as_json: bool) -> None:
    if as_json:
        show_json({**asdict(made), "path": str(made.path)})
        return
    show(
        f"{made.path}: {made.parameters / 1e6:.1f} million parameters, {made.bytes / 1e6:.1f} MB, drafts among {made.said} "
        f"of {made.vocabulary} tokens"
    )
    for held in made.checks:
        show(f"checked: {held}")
    for engine, command in made.launch.items():
        show(f"{engine}: {command}")
