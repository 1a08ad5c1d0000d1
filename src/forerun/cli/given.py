"""The arguments that several commands share, and what they open."""

from __future__ import annotations

from typing import Annotated

import typer

from ..engine import Engine, load
from .method import Method
from .screen import note

Model = Annotated[
    str, typer.Argument(help="A bundled name (smollm2), a directory, a GGUF file or a hub name.", show_default=False)
]
Drafter = Annotated[str, typer.Option(help="Who drafts; see: forerun drafters.")]
Policy = Annotated[str, typer.Option(help="How long drafts get; see: forerun policies.")]
Dtype = Annotated[str | None, typer.Option(help="float32, bfloat16 or float16; the checkpoint's own if not given.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, mps; the best there is if not given.")]
Weights = Annotated[
    str, typer.Option(help="Hold the model's matrices as bf16, int8 or int4; as they are if not given.")
]
RunnerName = Annotated[
    str,
    typer.Option("--runner", help="lean: forerun's own decoder; hf: transformers' modules; auto: lean where it fits."),
]
Trust = Annotated[bool, typer.Option("--trust-remote-code", help="Run Python code that comes with the model.")]
Raw = Annotated[bool, typer.Option("--raw", help="Hand texts over as they are, without the chat template.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]

# what the commands' own flags are called, so that no method's option takes their place
RESERVED = (
    "model",
    "prompt",
    "dtype",
    "device",
    "weights",
    "runner",
    "raw",
    "json",
    "system_prompt",
    "prompts",
    "repeats",
    "help",
)


def open_engine(
    model: str,
    method: Method,
    dtype: str | None,
    device: str | None,
    trust: bool,
    weights: str = "",
    runner: str = "auto",
) -> Engine:
    note(f"loading {model}")
    return load(
        model,
        drafter=method.drafter,
        policy=method.policy,
        drafter_options=method.drafter_options,
        policy_options=method.policy_options,
        dtype=dtype,
        device=device,
        weights=weights,
        runner=runner,
        trust_remote_code=trust,
    )
