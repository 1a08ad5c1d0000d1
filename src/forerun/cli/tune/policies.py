"""forerun policies: the list of policies, and their comparison on a trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import UnsupportedOption
from ...plotting import check_plotting
from ...tune.replay.plots import write_plots
from ..flags import takes
from ..listing import listed
from ..method import Method
from ..output import check_folder
from ..reports import write_report
from ..shared_options import OPENING, AsJson, measured_with, open_engine
from ..terminal import progress, show, show_json
from ..threads import THREADS
from ..values import at_least
from .policy_tables import show_report
from .rounds import measured_rounds
from .rules import rule_of
from .simulate import TraceFile, described, open_trace

if TYPE_CHECKING:
    from ...engine.engine import Engine
    from ...traces.read import Trace
    from ...tune.replay.report import Variant
    from ...tune.replay.timing import Timed

RATIOS = ("c=0.05", "c=0.1", "c=0.2", "c=0.3")

policies = typer.Typer(name="policies", help="List the length policies with their options, or compare them on a trace.")


@policies.callback(invoke_without_command=True)
def listing(context: typer.Context, as_json: AsJson = False) -> None:
    """List the length policies with their options, or compare them on a trace."""
    if context.invoked_subcommand is None:
        listed("policy", as_json)


@policies.command("compare")
@takes(*OPENING, THREADS)
def compare(
    trace: TraceFile,
    choose_on: Annotated[
        Path | None,
        typer.Option(help="A trace of other prompts: only the variant of a rule that is best there is judged."),
    ] = None,
    rule: Annotated[
        list[str] | None,
        typer.Option(
            help='Such as "threshold confidence=0.4|0.6"; may be repeated. All without required options if not given.'
        ),
    ] = None,
    costs: Annotated[
        str,
        typer.Option(
            help="Separated by commas: calibrated, c=0.1. The trace's own, and c from 0.05 to 0.3, if not given."
        ),
    ] = "",
    measure: Annotated[
        str | None,
        typer.Option(
            help="The traced model: measure the current cost of rounds, and time the best rules and the best fixed length."
        ),
    ] = None,
    best: Annotated[int, typer.Option(help="How many of the best rules to time.")] = 3,
    timed_prompts: Annotated[int, typer.Option(help="How many of the prompts to time.")] = 16,
    repeats: Annotated[int, typer.Option(help="How many times to time each rule on all of them.")] = 3,
    output: Annotated[Path | None, typer.Option(help="Write report.json and PNG files into this folder.")] = None,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Replay every rule and every fixed length on a trace: discard and verification rates, speed-ups under several costs."""
    from ...tune.replay.report import default_rules, report
    from ...tune.replay.round_costs import costs_of

    if output is not None:
        check_plotting()
        check_folder(output)
    at_least(1, best=best, timed_prompts=timed_prompts, repeats=repeats)
    rules = default_rules() if rule is None else [rule_of(text) for text in rule]
    judged, chosen = open_trace(trace), None if choose_on is None else open_trace(choose_on)
    if chosen is not None:
        chosen.check(judged.header.pair)
    if measure is not None and judged.branched:
        raise UnsupportedOption(f"--measure times chains, and {trace} holds trees; trace the drafter that they branch")
    engine = None if measure is None else _engine(measure, judged, given)
    if engine is not None:
        judged = _measured_again(engine, judged, given["weights"])
    under = [costs_of(name, judged) for name in _names(costs, judged)]
    with progress("replaying", len(under)) as tick:
        simulated = report(judged, rules, under, chosen, tick)
    told: dict[str, Any] = {"trace": _about(judged), "simulated": simulated, "timed": []}
    if engine is not None:
        timed = _timed(engine, judged, fastest(simulated[0], best), timed_prompts, repeats)
        told = {**told, **measured_with(engine, given["weights"]), "timed": [one.as_dict() for one in timed]}
    _publish(told, judged, output, as_json)


def _timed(engine: Engine, trace: Trace, variants: Sequence[Variant], prompts: int, repeats: int) -> list[Timed]:
    from ...tune.replay.round_costs import calibrated
    from ...tune.replay.timing import time_rules

    with progress("timing", repeats * min(prompts, len(trace.answers))) as tick:
        return time_rules(engine, trace, variants, calibrated(trace), prompts=prompts, repeats=repeats, tick=tick)


def _names(costs: str, trace: Trace) -> list[str]:
    if not costs:
        return [*(["calibrated"] if trace.header.costs is not None else []), *RATIOS]
    return [name.strip() for name in costs.split(",")]


def fastest(under: Mapping[str, Any], count: int) -> list[Variant]:
    """The best fixed length that drafts at all, and the best rules."""
    from ...tune.replay.report import FIXED, Variant

    k = max(range(1, len(under["fixed"])), key=lambda k: float(under["fixed"][k]["speedup"]))
    rules = sorted(under["rules"], key=lambda rule: -float(rule["speedup"]))[:count]
    return [Variant(FIXED, {"k": k}), *(Variant(rule["name"], rule["options"]) for rule in rules)]


def _about(trace: Trace) -> dict[str, Any]:
    return {"file": trace.path.name, "answers": len(trace.answers), **trace.header.as_dict()}


def _engine(model: str, trace: Trace, given: Mapping[str, Any]) -> Engine:
    """The model with the trace's drafter."""
    from ...tune.replay.report import FIXED

    options = {
        name: tuple(value) if isinstance(value, list) else value for name, value in trace.header.drafter_options.items()
    }
    engine = open_engine(model, Method(trace.header.drafter, FIXED, options, {}), given)
    trace.check(engine.pair)
    return engine


def _measured_again(engine: Engine, trace: Trace, weights: str) -> Trace:
    """The trace with costs of now: those of another hour of a shared machine would be held against this one's times."""
    prompts = [answer.prompt for answer in trace.answers]
    weights = measured_with(engine, weights)["weights"]
    costs = measured_rounds(engine, trace.header.drafter, prompts, trace.header.depth, weights)
    return replace(trace, header=replace(trace.header, costs=costs))


def _publish(told: dict[str, Any], trace: Trace, output: Path | None, as_json: bool) -> None:
    if output is not None:
        write_report(told, output / "report.json", write_plots)
    if as_json:
        show_json(told)
        return
    show_report(told)
    show(described(trace, ", ".join(under["costs"] for under in told["simulated"])))
