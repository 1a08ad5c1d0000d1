"""A design as one JSON object, and as sentences that sum it up."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ..core.cost import Cost
from ..models.files.draft_shape import DraftShape
from .run import GOAL, Design, Trained, Untrained
from .shape_costs import ShapeCosts
from .throughput import DraftTimes


def report_of(design: Design, model: str, data: str, target: DraftShape) -> dict[str, Any]:
    """model and data: as the command line names the target and its answers."""
    loop = design.loop
    return {
        "prefix": design.prefix,
        "target": {
            "shape": asdict(target),
            "step_ms": loop.plain,
            "verify_ms": _by_rows(loop.verify),
            "tokens_per_second": loop.plain_speed,
        },
        "overhead_ms": asdict(loop.overhead),
        "acceptance": {"level": design.estimate.level, "slope": design.estimate.slope, "basis": design.estimate.basis},
        "goal": GOAL,
        "shapes": [_untrained(one) for one in design.shapes],
        "candidates": [_trained(one) for one in design.candidates],
        "depth_and_width": None if design.shape_costs is None else _shape_costs(design.shape_costs),
        "recommended": _recommended(design, model, data),
        "summary": sentences(design),
    }


def sentences(design: Design) -> list[str]:
    """What follows, in the order of the tables."""
    said: list[str] = []
    if design.shape_costs is not None:
        said.append(design.shape_costs.sentence)
        if design.shape_costs.per_layer is not None:
            said.append(
                f"Fitted to all shapes of this vocabulary: a layer costs {design.shape_costs.per_layer:.3f} ms besides its "
                f"parameters, a million parameters {design.shape_costs.per_million:.3f} ms."
            )
    if design.shapes:
        said.append(f"Acceptance of untrained shapes: {design.estimate.basis}.")
        said.append(_best(design.shapes[0]))
    if design.candidates:
        said.append(_ranked(design.candidates))
    return said


def _best(one: Untrained) -> str:
    held = f"{one.shape.name}: {one.size.whole / 1e6:.1f} M parameters, {one.size.megabytes:.0f} MB"
    needs = ", ".join(
        f"{what} takes an acceptance of {alpha:.2f}" if alpha is not None else f"{what} is out of reach"
        for what, alpha in (("breaking even", one.break_even), (f"{GOAL} x", one.for_goal))
    )
    told = one.prediction
    estimate = (
        f"at the estimated {one.acceptance:.2f} it gives {told.speedup:.2f} x plain decoding with drafts of {told.k}"
    )
    if told.speedup <= 1:
        return f"No shape is predicted to beat plain decoding here. The nearest is {held}; {estimate}; {needs}."
    return f"Recommended: {held}; {estimate}; {needs}."


def _ranked(candidates: tuple[Trained, ...]) -> str:
    said = "Candidates are ranked by predicted throughput, not by perplexity"
    told = [one for one in candidates if one.on_log.perplexity is not None]
    if len(told) < 2:
        return f"{said}."
    best = min(told, key=lambda one: one.on_log.perplexity or 0.0)
    if best is candidates[0]:
        return f"{said}; here the fastest is also the one with the lowest perplexity."
    return f"{said}: {best.candidate.name} has the lowest perplexity, {candidates[0].candidate.name} is the fastest."


def _recommended(design: Design, model: str, data: str) -> dict[str, Any] | None:
    """The first of the shapes, whether or not it pays, and how to train it."""
    if not design.shapes:
        return None
    first = design.shapes[0]
    command = ["forerun", "train", "draft", model, "--shape", first.shape.name, "--data", data, "-o", "draft"]
    return {**_untrained(first), "pays": first.prediction.speedup > 1, "command": shlex.join(command)}


def _untrained(one: Untrained) -> dict[str, Any]:
    return {
        "shape": one.shape.name,
        **asdict(one.shape),
        "parameters": asdict(one.size),
        **_times(one.times),
        "covered": one.covered,
        "acceptance": one.acceptance,
        "predicted": asdict(one.prediction),
        "needed_to_break_even": one.break_even,
        "needed_for_goal": one.for_goal,
    }


def _trained(one: Trained) -> dict[str, Any]:
    return {
        "model": one.candidate.model,
        "options": dict(one.candidate.options),
        "name": one.candidate.name,
        **asdict(one.shape),
        "parameters": asdict(one.size),
        **_times(one.times),
        "acceptance": one.on_log.draft.acceptance,
        "perplexity": one.on_log.perplexity,
        "predicted": asdict(one.prediction),
    }


def _times(times: DraftTimes) -> dict[str, Any]:
    return {"first_ms": _by_rows(times.first), "later_ms": times.later, "reading_ms_per_token": times.reading}


def _shape_costs(shape_costs: ShapeCosts) -> dict[str, Any]:
    return {
        "rows": [{"shape": shape.name, "read": read, "ms": ms} for shape, read, ms in shape_costs.rows],
        "ratio": shape_costs.ratio,
        "ms_per_layer": shape_costs.per_layer,
        "ms_per_million": shape_costs.per_million,
    }


def _by_rows(cost: Cost) -> Mapping[str, float]:
    return {str(point.rows): point.ms for point in cost.points}
