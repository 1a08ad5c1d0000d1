"""forerun doctor: which kernels run on this machine and why, and what a step can take at best."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .flags import takes
from .shared_options import OPENING, PLAIN, AsJson, open_engine
from .terminal import show_json, show_table

if TYPE_CHECKING:
    from ..models.lean.native.machine import Machine


@takes(*OPENING)
def doctor(
    model: Annotated[str | None, typer.Argument(help="Say it for this model, too.", show_default=False)] = None,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Show what this machine has, which kernels run and why, how fast memory is, and what a step takes at best."""
    from ..engine.measurement_conditions import hardware
    from ..models.lean.native.machine import machine

    found = machine()
    told = {"hardware": hardware(), **asdict(found)}
    if model is not None:
        told |= _of_model(model, found, given)
    if as_json:
        show_json(told)
        return
    show_table(("", ""), rows(told))


def _of_model(model: str, found: Machine, given: dict[str, Any]) -> dict[str, Any]:
    from ..models.lean.runner import LeanRunner

    runner = open_engine(model, PLAIN, given).runner
    own = {"model": runner.name, "model_kernels": runner.kernels, "model_reason": runner.kernels_reason}
    if not isinstance(runner, LeanRunner):
        return {**own, "model_reason": "it runs on transformers' modules"}
    return {**own, "step_bytes": runner.step_nbytes, "step_seconds": found.best_seconds(runner.step_nbytes)}


def rows(told: dict[str, Any]) -> list[tuple[str, str]]:
    """What was found, line by line."""
    speed = told["bandwidth"]
    lines = [
        ("processor", f"{told['hardware']}, {told['threads']} threads used"),
        ("native kernels built", ", ".join(told["built"]) or "none"),
        ("of these it runs", ", ".join(told["usable"]) or "none"),
        ("used for int4 and int8", f"{told['kernels'] or 'torch operations'}: {told['reason']}"),
        ("memory", "not measured" if speed is None else f"{speed / 1e9:.1f} GB/s"),
    ]
    if "model" in told:
        why = f": {told['model_reason']}" if told["model_reason"] else ""
        lines.append((told["model"], f"{told['model_kernels']}{why}"))
    if told.get("step_seconds"):
        size, seconds = told["step_bytes"] / 1e6, told["step_seconds"]
        lines.append(("a step at best", f"{1e3 * seconds:.2f} ms, {1 / seconds:.0f} a second: it reads {size:.1f} MB"))
    return lines
