"""forerun doctor: which kernels run on this machine and why, and what a step can take at best."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .flags import takes
from .shared_options import OPENING, PLAIN, AsJson, open_engine
from .terminal import show_json, show_table
from .threads import THREADS, cores

if TYPE_CHECKING:
    from ..models.lean.native.machine import Machine


@takes(*OPENING, THREADS)
def doctor(
    model: Annotated[str | None, typer.Argument(help="Say it for this model, too.", show_default=False)] = None,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Show what this machine has, which kernels run and why, how fast memory is, and what a step takes at best."""
    from ..engine.measurement_conditions import hardware
    from ..models.lean.native.machine import machine

    found = machine()
    told = {"hardware": hardware(), "cores": cores(), **asdict(found), **_surroundings()}
    if model is not None:
        told |= _of_model(model, found, given)
    if as_json:
        show_json(told)
        return
    show_table(("", ""), rows(told))


def _surroundings() -> dict[str, Any]:
    """What the system and the environment say, and what is kept."""
    from ..models.lean.mapped.place import kept_bytes, switched_off, weights_folder
    from ..models.lean.native import openmp, pages

    settings = openmp.settings()
    return {
        "openmp": settings,
        "openmp_spins": openmp.spins(settings),
        "large_pages": pages.setting(),
        "weights_folder": None if switched_off() else str(weights_folder()),
        "weights_kept": kept_bytes(weights_folder()),
    }


def _of_model(model: str, found: Machine, given: dict[str, Any]) -> dict[str, Any]:
    from ..models.lean.native.pages import large_bytes
    from ..models.lean.runner import LeanRunner

    engine = open_engine(model, PLAIN, given)
    runner = engine.runner
    own = {"model": runner.name, "model_kernels": runner.kernels, "model_reason": runner.kernels_reason}
    if not isinstance(runner, LeanRunner):
        return {**own, "model_reason": "it runs on transformers' modules"}
    file = runner.weights_file
    # what a file holds is mapped when it is first read
    engine.generate([0], max_new_tokens=1, generation_config=False)
    return {
        **own,
        "step_bytes": runner.step_nbytes,
        "step_seconds": found.best_seconds(runner.step_nbytes),
        "weights_bytes": runner.nbytes,
        "weights_file": None if file is None else str(file),
        "weights_reason": runner.weights_reason,
        "large_bytes": large_bytes(file),
    }


def rows(told: dict[str, Any]) -> list[tuple[str, str]]:
    """What was found, line by line."""
    speed = told["bandwidth"]
    lines = [
        ("processor", f"{told['hardware']}, {told['threads']} threads used, {told['cores']} cores"),
        ("native kernels built", ", ".join(told["built"]) or "none"),
        ("of these it runs", ", ".join(told["usable"]) or "none"),
        ("used", f"{told['kernels'] or 'torch operations'}: {told['reason']}"),
        ("memory", "not measured" if speed is None else f"{speed / 1e9:.1f} GB/s"),
        *_surrounding_rows(told),
    ]
    if "model" in told:
        why = f": {told['model_reason']}" if told["model_reason"] else ""
        lines.append((told["model"], f"{told['model_kernels']}{why}"))
    if "weights_bytes" in told:
        lines += _weights_rows(told)
    if told.get("step_seconds"):
        size, seconds = told["step_bytes"] / 1e6, told["step_seconds"]
        lines.append(("a step at best", f"{1e3 * seconds:.2f} ms, {1 / seconds:.0f} a second: it reads {size:.1f} MB"))
    return lines


def _surrounding_rows(told: dict[str, Any]) -> list[tuple[str, str]]:
    settings = ", ".join(f"{name}={value}" for name, value in told["openmp"].items()) or "no settings"
    if told["openmp_spins"]:
        settings += f"; {told['openmp_spins']} makes torch's threads take cores from the native step: unset it"
    folder = told["weights_folder"]
    kept = "off (FORERUN_PACKED)" if folder is None else f"{folder}, {told['weights_kept'] / 1e6:.1f} MB"
    return [
        ("OpenMP", settings),
        ("large pages", told["large_pages"] or "the system doesn't tell"),
        ("packed weights kept", kept),
    ]


def _weights_rows(told: dict[str, Any]) -> list[tuple[str, str]]:
    """Where a model's weights lie."""
    size, file = told["weights_bytes"] / 1e6, told["weights_file"]
    place = f"mapped from {file}" if file else f"in memory of this process: {told['weights_reason']}"
    lines = [("its weights", f"{size:.1f} MB, {place}")]
    if told["large_bytes"] is not None:
        whose = "of that file" if file else "of this process's memory"
        lines.append(("on large pages", f"{told['large_bytes'] / 1e6:.1f} MB {whose}"))
    return lines
