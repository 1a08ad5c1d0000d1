"""forerun design: which draft model to train for a target on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...design.plots import write_plots
from ...design.shapes import equal_shapes, grid
from ...design.throughput import PREFIX, check_acceptance
from ...drafters.registry import DRAFTERS
from ...errors import UnsupportedOption
from ...models.files.draft_shape import DraftShape
from ...plotting import check_plotting
from ..flags import takes
from ..method import annotation_of
from ..output import check_folder
from ..reports import write_report
from ..shared_options import OPENING, PLAIN, AsJson, Model, measured_with, open_engine
from ..terminal import progress, show, show_json, show_table
from ..threads import THREADS
from ..values import at_least, parse
from .design_tables import candidates_table, depth_table, shapes_table

if TYPE_CHECKING:
    from ...design.candidates import Candidate
    from ...design.run import Design, Setup
    from ...engine.engine import Engine

ANSWERS = 48


@takes(*OPENING, THREADS)
def design(
    model: Model,
    shape: Annotated[
        list[str] | None,
        typer.Option(help="Also measure this shape: layers=4,width=384; the rest is the target's; may be repeated."),
    ] = None,
    known: Annotated[
        list[str] | None,
        typer.Option(help='The measured acceptance of a trained shape, "layers=4:0.42"; may be repeated.'),
    ] = None,
    candidate: Annotated[
        list[str] | None,
        typer.Option(
            "--candidate",
            "--candidates",
            help="A draft model to measure, with options after commas: DIR or DIR,vocabulary=8192; may be repeated.",
        ),
    ] = None,
    log: Annotated[Path | None, typer.Option(help="The target's greedy answers, from forerun train answers.")] = None,
    answers: Annotated[int, typer.Option(help="Read at most this many answers of the log.")] = ANSWERS,
    with_grid: Annotated[
        bool, typer.Option("--grid/--no-grid", help="Also measure a grid of depths and widths below the target's.")
    ] = True,
    prefix: Annotated[int, typer.Option(help="The number of tokens before the measured rounds.")] = PREFIX,
    report: Annotated[Path | None, typer.Option(help="Write design.json and design.png here.")] = None,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Measure what draft models of many shapes would cost here, and say which to train and what it must reach."""
    from ...design.log import read_log
    from ...design.report import report_of
    from ...design.run import Setup

    if report is not None:
        check_plotting()
        check_folder(report)
    at_least(1, answers=answers, prefix=prefix)
    chosen = _candidates(candidate or (), log)
    config = _config(model, given)
    shapes, points = _shapes(shape or (), config), [_point(text, config) for text in known or ()]
    engine = open_engine(model, PLAIN, given)
    scanned = _grid(config, engine) if with_grid else []
    setup = Setup(
        config=config,
        weights=_format(model, engine, given["weights"]),
        held=given["weights"],
        shapes=[*scanned, *shapes],
        equal=equal_shapes(config, min(one.vocabulary for one in scanned)) if scanned else [],
        known=points,
        candidates=chosen,
        configs=[_config(one.model, given) for one in chosen],
        log=() if log is None else read_log(log, engine.identity, answers),
        prefix=prefix,
    )
    told = {
        **report_of(_measured(engine, setup), model, str(log or "answers.jsonl"), DraftShape.of(config)),
        **measured_with(engine, given["weights"]),
        "log": None if log is None else {"file": log.name, "answers": len(setup.log)},
    }
    _publish(told, report, as_json)


def _grid(config: Any, engine: Engine) -> list[DraftShape]:
    """Depths by widths below the target's, cut out of its own layers where its runner lets that be."""
    from ...models.lean.runner import LeanRunner

    return list(grid(config, cut=isinstance(engine.runner, LeanRunner)))


def _format(model: str, engine: Engine, weights: str) -> str:
    """What the model's weights are held as."""
    from ...bench.calibration import Opened

    return Opened(model, engine, weights).format


def _measured(engine: Engine, setup: Setup) -> Design:
    from ...design.run import design as make_design

    with progress("measuring", setup.ticks) as tick:
        return make_design(engine, setup, tick)


def _config(model: str, given: Mapping[str, Any]) -> Any:
    from ...design.untrained import config_of

    return config_of(model, given["dtype"], given["trust_remote_code"])


def _shapes(texts: Sequence[str], config: Any) -> list[DraftShape]:
    found = [DraftShape.parse(text, config) for text in texts]
    for one in found:
        one.check(config)
    return found


def _point(text: str, config: Any) -> tuple[DraftShape, float]:
    """Of layers=4:0.42. Raises UnsupportedOption on anything else, ValueError on an acceptance outside [0, 1)."""
    shape, colon, value = text.rpartition(":")
    try:
        acceptance = float(value if colon else "none")
    except ValueError as error:
        raise UnsupportedOption(
            f"--known takes a shape, a colon and its acceptance such as layers=4:0.42, got {text!r}"
        ) from error
    check_acceptance(acceptance)
    return _shapes([shape], config)[0], acceptance


def _candidates(texts: Sequence[str], log: Path | None) -> list[Candidate]:
    chosen = [_candidate(text) for text in texts]
    if chosen and log is None:
        raise ValueError("--candidate needs --log, the target's answers: forerun train answers MODEL PROMPTS -o FILE")
    return chosen


def _candidate(text: str) -> Candidate:
    """A model, then options of the drafter draft_model. Raises UnsupportedOption on an option that it hasn't."""
    from ...design.candidates import DRAFT_MODEL, Candidate

    model, *parts = text.split(",")
    options: dict[str, Any] = {}
    entry = DRAFTERS.entry(DRAFT_MODEL)
    for part in parts:
        name, _, value = part.partition("=")
        annotation = None if name == "model" else annotation_of(entry, DRAFTERS, name)
        if annotation is None:
            known = ", ".join(option for option in entry.options if option != "model")
            raise UnsupportedOption(f"a candidate has no option {name!r}; known: {known or 'none'}")
        options[name] = parse(value, annotation, f"{name} of a candidate")
    return Candidate(model, options)


def _publish(told: Mapping[str, Any], folder: Path | None, as_json: bool) -> None:
    if folder is not None:
        write_report(told, folder / "design.json", write_plots)
    if as_json:
        show_json(dict(told))
        return
    _show(told)


def _show(told: Mapping[str, Any]) -> None:
    if told["shapes"]:
        show_table(*shapes_table(told), title="Untrained shapes, the fastest by prediction first")
    if told["depth_and_width"] is not None:
        show_table(*depth_table(told), title="Depth against width at about equal parameters")
    if told["candidates"]:
        show_table(*candidates_table(told), title="Candidates, the fastest by prediction first")
    for sentence in told["summary"]:
        show(sentence)
    if told["recommended"] is not None:
        show(f"To train it: {told['recommended']['command']}")
    step, beside = told["target"]["step_ms"], told["overhead_ms"]
    show(
        f"Measured after {told['prefix']} tokens: a plain step takes {step:.2f} ms; outside of forwards, a round takes "
        f"{beside['round']:.2f} ms, a drafted token {beside['drafted']:.3f}, an emitted one {beside['emitted']:.3f}."
    )
    show(f"{told['model']}, {told['weights']}, {told['hardware']}, {told['threads']} threads")
