"""The arguments that several commands share, and what they open."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .flags import flag
from .method import Method
from .terminal import note
from .threads import THREADS

if TYPE_CHECKING:
    from ..engine.engine import Engine

Model = Annotated[
    str, typer.Argument(help="A bundled name (smollm2), a directory, a GGUF file or a hub name.", show_default=False)
]
Drafter = Annotated[str, typer.Option(help="The drafter; see: forerun drafters.")]
Policy = Annotated[
    str | None, typer.Option(help="The rule for draft lengths; see: forerun policies. cost with auto, else fixed.")
]
Raw = Annotated[bool, typer.Option("--raw", help="Pass texts on as they are, without the chat template.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]

OPENING = tuple(
    flag(name, kind, default, "Model", help)
    for name, kind, default, help in (
        ("dtype", str | None, None, "float32, bfloat16 or float16; the checkpoint's own if not given."),
        ("device", str | None, None, "cpu, cuda, mps; the best there is if not given."),
        ("weights", str, "", "Hold the model's matrices as bf16, int8 or int4; as they are if not given."),
        ("runner", str, "auto", "lean: forerun's own decoder; hf: transformers' modules; auto: lean where it fits."),
        (
            "activations",
            int | None,
            None,
            "Hold the rows that native products take in 8 or 16 bits; in 16 if not given.",
        ),
        ("trust_remote_code", bool, False, "Run Python code that comes with the model."),
    )
)
# what the commands' own flags are called, so that no method's option takes their place
OWN = ("model", "prompt", "raw", "json", "sample", "system", "system_prompt", "prompts", "repeats", "profile", "help")
RESERVED = (*OWN, THREADS.name, *(one.name for one in OPENING))
PLAIN = Method("none", "fixed", {}, {})


def open_engine(model: str, method: Method, given: Mapping[str, Any]) -> Engine:
    """The engine of a method on a model, opened as the flags among `given` say.

    A kept calibration pads its forwards where it advises that, and tells the drafters what they cost.
    """
    note(f"loading {model}")
    from ..bench.calibration import Opened, use_kept_cost
    from ..engine.engine import load

    engine = load(
        model,
        drafter=method.drafter,
        policy=method.policy,
        drafter_options=method.drafter_options,
        policy_options=method.policy_options,
        **{one.name: given.get(one.name, one.default) for one in OPENING},
    )
    opened = Opened(model, engine, given.get("weights", ""))
    if use_kept_cost(opened):
        note("forwards are padded, as the calibration advises")
    return engine


def measured_with(engine: Engine, weights: str) -> dict[str, Any]:
    """What a figure that this command line measured depends on, and when; weights "" are the model's own."""
    from ..engine.measurement_conditions import conditions

    return {
        **conditions(engine, shlex.join(["forerun", *sys.argv[1:]])),
        "weights": weights or str(engine.runner.dtype).removeprefix("torch."),
        "runner": type(engine.runner).__name__,
        "kernels": engine.runner.kernels,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
