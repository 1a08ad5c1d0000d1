"""forerun calibrate: what a forward costs on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

import typer

from ..core.cost import Cost, Costs, draft_ratio
from ..models.packed.plan import LayerPlan
from .flags import takes
from .shared_options import OPENING, PLAIN, AsJson, Model, open_engine
from .terminal import note, progress, show, show_json, show_table
from .threads import THREADS
from .values import parse

LENGTHS = (1, 2, 3, 4, 5, 7, 9)


@takes(*OPENING, THREADS)
def calibrate(
    model: Model,
    exit_layer: Annotated[
        list[int] | None, typer.Option(help="Also measure a draft that exits after this layer; may be repeated.")
    ] = None,
    skip_attention: Annotated[str, typer.Option(help="Measure a draft without these attention sublayers: 3,5,7.")] = "",
    skip_mlp: Annotated[str, typer.Option(help="The MLP sublayers that this draft leaves out.")] = "",
    draft_weights: Annotated[
        str,
        typer.Option(help="Measure these drafts with int8 or int4 weights; without another draft: the whole model."),
    ] = "",
    draft_model: Annotated[str | None, typer.Option(help="Also measure this draft model.")] = None,
    refresh: Annotated[bool, typer.Option("--refresh", help="Measure again, even if it was measured before.")] = False,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Measure milliseconds a forward by rows, for a model, its plans and a draft model. Kept for the next time."""
    from ..bench.calibrate import REPEATS
    from ..bench.calibration import Opened, calibrated
    from ..engine.measurement_conditions import conditions

    target = Opened(model, open_engine(model, PLAIN, given), given["weights"])
    plans = _plans(target.engine.runner.num_layers, exit_layer or (), skip_attention, skip_mlp, draft_weights)
    draft = None
    if draft_model is not None:
        draft = Opened(draft_model, open_engine(draft_model, PLAIN, given), given["weights"])
    with progress("measuring", REPEATS + 1) as tick:
        costs, known = calibrated(target, plans, draft, refresh=refresh, tick=tick)
    about = conditions(target.engine, "forerun calibrate")
    if as_json:
        show_json({**about, **costs.as_dict(), "advice": advice(costs)})
        return
    note("measured before; --refresh measures again" if known else "measured now")
    show_table(*curves(costs), title="Milliseconds per forward (interquartile range)")
    show_table(*break_even(costs), title="Tokens per round at which speculation pays, by drafted tokens")
    for sentence in advice(costs):
        show(sentence)
    show(f"{about['model']}, {about['dtype']}, {about['hardware']}, {about['threads']} threads")


def _plans(num_layers: int, exits: Sequence[int], skip_attention: str, skip_mlp: str, weights: str) -> list[LayerPlan]:
    plans = [LayerPlan.early_exit(layer, num_layers) for layer in exits]
    attention: Any = parse(skip_attention, tuple[int, ...], "--skip-attention")
    mlp: Any = parse(skip_mlp, tuple[int, ...], "--skip-mlp")
    if attention or mlp or (weights and not plans):
        plans.append(LayerPlan.skip(num_layers, attention, mlp))
    return [replace(plan, weights=weights) for plan in plans]


def label(cost: Cost) -> str:
    return " ".join(cost.key)


def curves(costs: Costs) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """A line for each number of rows, a column for each cost and prefix."""
    columns = [(cost, prefix) for cost in costs.costs for prefix in cost.prefixes]
    points = [{(point.rows, point.prefix): point for point in cost.points} for cost, _ in columns]
    rows: list[tuple[str, ...]] = []
    for count in costs.target.rows:
        cells = [
            "" if (point := known.get((count, prefix))) is None else f"{point.ms:.2f} ({point.spread:.2f})"
            for known, (_, prefix) in zip(points, columns, strict=True)
        ]
        rows.append((str(count), *cells))
    return ("rows", *(f"{label(cost)}, prefix {prefix}" for cost, prefix in columns)), rows


def break_even(costs: Costs) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """k c + t(k + 1) / t(1) for several k: after the short prefix, by way of drafting."""
    target = costs.target
    ways = [("without a forward (lookup)", 0.0), *((label(c), draft_ratio(target, c)) for c in costs.costs[1:])]
    rows = [
        (name, f"{ratio:.2f}", *(f"{k * ratio + target.ms(k + 1) / target.ms(1):.2f}" for k in LENGTHS))
        for name, ratio in ways
    ]
    return ("drafted", "c", *map(str, LENGTHS)), rows


def advice(costs: Costs) -> list[str]:
    """What follows for padding."""
    said: list[str] = []
    for cost in costs.costs:
        best = cost.best_rows(1)
        if best != 1:
            said.append(
                f"{label(cost)}: a one-row forward runs as {best} rows, {cost.ms(best):.2f} ms for {cost.ms(1):.2f}."
            )
    return said
