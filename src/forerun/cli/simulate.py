"""forerun simulate: a policy replayed on a trace, without a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..methods import DEFAULT_POLICY
from ..traces import Trace, read_trace
from ..tune.oracle import oracle
from ..tune.policy_report import Variant, best_of, fixed_lengths, told
from ..tune.round_costs import costs_of
from ..tune.simulate import Replay
from .flags import takes
from .given import RESERVED, AsJson, Policy
from .method import method_flags, method_of
from .policy_tables import COLUMNS, line
from .screen import note, show, show_json, show_table

TraceFile = Annotated[Path, typer.Argument(help="A file of forerun trace.", show_default=False, metavar="TRACE")]


@takes(*method_flags((*RESERVED, "costs")))
def simulate(
    trace: TraceFile,
    policy: Policy = DEFAULT_POLICY,
    costs: Annotated[
        str,
        typer.Option(help="calibrated: as measured with the trace; c=0.1: a drafted token costs 0.1 verifications."),
    ] = "calibrated",
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Replay a policy on a trace: its rounds, and the speed-up over plain decoding that the costs make of them."""
    method = method_of("none", policy, given)
    opened = open_trace(trace)
    replay = Replay(opened, costs_of(costs, opened))
    variant = Variant(policy, method.policy_options)
    found = replay.policy(variant.build())
    fixed, best = fixed_lengths(replay), oracle(replay)
    k = best_of(fixed)
    if as_json:
        show_json(
            {
                "policy": variant.label,
                "costs": costs,
                **told(found, replay),
                "best_fixed": {"k": k, **told(fixed[k], replay)},
                "oracle": told(best, replay),
                "answers": len(opened.answers),
            }
        )
        return
    lines = ((variant.label, found), (f"best fixed length, k={k}", fixed[k]), ("oracle", best))
    show_table(COLUMNS, [line(name, told(one, replay)) for name, one in lines])
    show(described(opened, costs))


def open_trace(file: Path) -> Trace:
    """The trace, with a note where answers are missing."""
    trace = read_trace(file)
    if len(trace.answers) < trace.header.asked:
        note(f"{file} holds {len(trace.answers)} of {trace.header.asked} answers: the trace was not finished")
    return trace


def described(trace: Trace, costs: str) -> str:
    header = trace.header
    options = "".join(f" {key}={value}" for key, value in header.drafter_options.items())
    return f"{header.model}, drafter {header.drafter}{options}, {len(trace.answers)} answers, costs: {costs}"
