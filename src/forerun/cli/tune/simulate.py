"""forerun simulate: a policy replayed on a trace, without a model; and where trees beat chains, if it holds both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...engine.methods import DEFAULT_POLICY
from ..flags import takes
from ..method import method_flags, method_of
from ..shared_options import RESERVED, AsJson, Policy
from ..terminal import note, show, show_json, show_table
from .policy_tables import COLUMNS, line

if TYPE_CHECKING:
    from ...traces.read import Trace
    from ...tune.replay.report import Variant
    from ...tune.replay.round_costs import RoundCosts
    from ...tune.replay.simulate import Replay

TraceFile = Annotated[Path, typer.Argument(help="A file of forerun trace.", show_default=False, metavar="TRACE")]

Labelled = tuple[str, Mapping[str, Any]]
BRANCHED_COLUMNS = ("", "speed-up", "tokens per round", "rows verified", "draft forwards per token", "tokens/s")


@takes(*method_flags((*RESERVED, "costs")))
def simulate(
    trace: TraceFile,
    policy: Policy = DEFAULT_POLICY,
    costs: Annotated[
        str,
        typer.Option(
            help="calibrated: as measured with the trace; c=0.1: a forward of the drafter costs 0.1 verifications; "
            "'c=0.1 rows=0.02': and each further row of a forward, the target's or the drafter's, 0.02 of it."
        ),
    ] = "calibrated",
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Replay a policy on a trace: its rounds, and the speed-up over plain decoding that the costs make of them.

    Of a trace of trees it also says where they beat the chain of the drafter that they branch.
    """
    from ...tune.replay.break_even import break_even, sentences
    from ...tune.replay.report import Variant
    from ...tune.replay.round_costs import costs_of
    from ...tune.replay.simulate import Replay

    method = method_of("none", policy, given)
    opened = open_trace(trace)
    replay = Replay(opened, costs_of(costs, opened, opened.branched), opened.branched)
    variant = Variant(method.policy, method.policy_options)
    seen = _seen(replay, variant)
    report: dict[str, Any] = {"policy": variant.label, "costs": costs, **seen}
    even = None
    if opened.branched:
        chains = Replay(opened, costs_of(costs, opened))
        report["chain"] = _best(chains)
        even = break_even(opened, *_prices(chains.costs, seen["best_fixed"]))
        report["beats_chain"] = asdict(even)
    if as_json:
        show_json({**report, "answers": len(opened.answers)})
        return
    if even is None:
        show_table(COLUMNS, [line(label, found) for label, found in _lines(seen, variant.label)])
    else:
        _show_branched(opened.header.drafter, _lines(seen, variant.label), _lines(report["chain"]))
        for sentence in sentences(even, opened.header.drafter):
            show(sentence)
    show(described(opened, costs))


def _show_branched(name: str, trees: Iterable[Labelled], chains: Iterable[Labelled]) -> None:
    lines = [*((f"{name}, {label}", one) for label, one in trees), *((f"chain, {label}", one) for label, one in chains)]
    show_table(
        BRANCHED_COLUMNS,
        [
            (
                label,
                f"{one['speedup']:.3f}",
                f"{one['tokens_per_round']:.2f}",
                f"{one['drafted_per_round'] + 1:.1f}",
                f"{one['draft_forwards_per_token']:.2f}",
                "" if one["tokens_per_second"] is None else f"{one['tokens_per_second']:.1f}",
            )
            for label, one in lines
        ],
    )


def _best(replay: Replay) -> dict[str, Any]:
    """The upper lines: the best fixed length, and the oracle."""
    from ...tune.replay.oracle import oracle
    from ...tune.replay.report import as_figures, best_of, fixed_lengths

    fixed = fixed_lengths(replay)
    k = best_of(fixed)
    return {"best_fixed": {"k": k, **as_figures(fixed[k], replay)}, "oracle": as_figures(oracle(replay), replay)}


def _seen(replay: Replay, variant: Variant) -> dict[str, Any]:
    from ...tune.replay.report import as_figures

    return {**as_figures(replay.policy(variant.build()), replay), **_best(replay)}


def _lines(found: Mapping[str, Any], label: str = "") -> Iterator[Labelled]:
    """The table's rows: the policy's if it has a label, and those above it."""
    if label:
        yield label, found
    yield f"best fixed length, k={found['best_fixed']['k']}", found["best_fixed"]
    yield "oracle", found["oracle"]


def _prices(costs: RoundCosts, best: Mapping[str, Any]) -> tuple[float, float]:
    """c and the price of a further row; of measured costs, those that fit the best trees' rows."""
    from ...tune.replay.break_even import ratios

    return ratios(costs, max(round(best["drafted_per_round"]), 1))


def open_trace(file: Path) -> Trace:
    """The trace, with a note where answers are missing."""
    from ...traces.read import read_trace

    trace = read_trace(file)
    if len(trace.answers) < trace.header.asked:
        note(f"{file} holds {len(trace.answers)} of {trace.header.asked} answers: the trace was not finished")
    return trace


def described(trace: Trace, costs: str) -> str:
    header = trace.header
    options = "".join(f" {key}={value}" for key, value in header.drafter_options.items())
    return f"{header.model}, drafter {header.drafter}{options}, {len(trace.answers)} answers, costs: {costs}"
