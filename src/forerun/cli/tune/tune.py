"""forerun tune: the fastest lossless way for a model, prompts and a machine."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import UnsupportedOption
from ...plotting import check_plotting
from ...tune.candidates import ADAPTER, DRAFT_MODEL, METHODS, Chosen
from ...tune.serving.knobs import Wanted
from ..flags import takes
from ..output import check_file, check_folder, write_text
from ..reports import write_report
from ..shared_options import OPENING, PLAIN, AsJson, Model, Raw, measured_with, open_engine
from ..terminal import finite, note, show, show_json, show_table
from ..threads import THREADS
from ..values import at_least
from .engine import Files, tune_knobs
from .engine_options import ENGINE, refuse_engine_flags, refuse_other_flags

if TYPE_CHECKING:
    from ...engine.engine import Engine
    from ...tune.run import Outcome
    from ...tune.setup import Setup

MAX_PROMPT = 1024
# flags of the search for own drafters, with their defaults
OF_OWN_DRAFTERS = {
    **{one.name: one.default for one in OPENING if one.name != "dtype"},
    "adapter": None,
    "vocabulary_text": None,
    "max_prompt": MAX_PROMPT,
    "storage": "",
}
UNITS = {"": 1, "s": 1, "m": 60, "h": 3600}


@takes(*OPENING, THREADS, *ENGINE)
def tune(
    model: Model,
    prompts: Annotated[Path, typer.Option(help='JSON lines with "prompt", "messages" or "turns".', show_default=False)],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The JSON file of the system to write.", show_default=False)
    ],
    budget: Annotated[str, typer.Option(help="How long to tune: 90s, 10m, 1h.")] = "10m",
    methods: Annotated[
        str, typer.Option(help=f"What to try, separated by commas: {', '.join(METHODS)}; all if not given.")
    ] = "",
    draft_model: Annotated[list[str] | None, typer.Option(help="A draft model to try; may be repeated.")] = None,
    adapter: Annotated[list[Path] | None, typer.Option(help="An exit adapter to try; may be repeated.")] = None,
    vocabulary_text: Annotated[
        Path | None, typer.Option(help="A text whose most frequent tokens make up small vocabularies.")
    ] = None,
    max_new_tokens: Annotated[int, typer.Option(help="The most tokens of an answer.")] = 64,
    max_prompt: Annotated[int, typer.Option(help="Leave out longer prompts.")] = MAX_PROMPT,
    storage: Annotated[
        str, typer.Option(help="Where to keep the search for skip sets: a file, or an address that Optuna knows.")
    ] = "",
    report: Annotated[
        Path | None,
        typer.Option(help="Write report.json, summary.txt, held_out.jsonl (the prompts) and PNG files here."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the choice of held-out prompts.")] = 0,
    raw: Raw = False,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Find the fastest lossless method for a model on your prompts and machine, or that none is. Goes on after a kill."""
    files, seconds = Files(prompts, output, report), seconds_of(budget)
    options = {**given, "max_new_tokens": max_new_tokens, "seed": seed, "max_prompt": max_prompt, "storage": storage}
    if given["engine"]:
        refuse_other_flags(
            given["engine"], {**options, "adapter": adapter, "vocabulary_text": vocabulary_text}, OF_OWN_DRAFTERS
        )
        wanted = Wanted(_names(methods), tuple(draft_model or ()))
        tune_knobs(model, files, wanted, seconds, options, raw, as_json)
    else:
        refuse_engine_flags(given)
        check_tuning()
        chosen = _chosen(methods, draft_model or [], adapter or [], vocabulary_text)
        _tune_drafters(model, files, chosen, seconds, options, raw, as_json)


def _tune_drafters(
    model: str,
    files: Files,
    chosen: Chosen,
    seconds: float,
    options: Mapping[str, Any],
    raw: bool,
    as_json: bool,
) -> None:
    """forerun's own. options: how the model is opened, and max_new_tokens, seed, max_prompt, storage."""
    from ...models.files.known_tables import find_tables
    from ...traces.record import read_prompts
    from ...tune.setup import Setup, split

    if files.report is not None:
        check_plotting()
        _make(files.report)
    check_file(files.output)
    at_least(2, max_new_tokens=options["max_new_tokens"])
    engine = open_engine(model, PLAIN, options)
    asked = read_prompts(engine, files.prompts, per_category=None, skip=0, max_prompt=options["max_prompt"], raw=raw)
    setup = Setup(
        chosen=replace(chosen, tables=tuple(one.name for one in find_tables().fitting(engine.identity))),
        budget=seconds,
        storage=options["storage"] or files.beside("skip-sets"),
        max_new_tokens=options["max_new_tokens"],
        seed=options["seed"],
        own_weights=options["weights"],
    )
    ids = [one.ids for one in asked]
    outcome = _run(engine, setup, ids, files.beside("log.jsonl"))
    if files.report is not None:
        _write_held_out(files.report, files.prompts, engine, split(ids, setup.seed)[1], raw)
    _publish(outcome, engine, model, files.prompts, files.output, files.report, options, as_json)


def check_tuning() -> None:
    """Raise UnsupportedOption where what the search needs is not installed."""
    for name in ("optuna", "filelock", "scipy"):
        if find_spec(name) is None:
            raise UnsupportedOption(f"forerun tune needs {name}: pip install 'forerun[tune]'")


def seconds_of(budget: str) -> float:
    """Of 90s, 10m, 1.5h or a plain number of seconds. Raises ValueError on anything else, and on nothing."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", budget.strip())
    seconds = float(found[1]) * UNITS[found[2]] if found else 0.0
    if seconds <= 0:
        raise ValueError(f"--budget takes a time above 0 such as 90s, 10m or 1h, got {budget!r}")
    return seconds


def _make(folder: Path) -> None:
    """Before the run, so that a report that can't be written costs nothing."""
    try:
        check_folder(folder)
    except OSError as error:
        raise ValueError(f"--report {folder} can't be made: {error}") from error


def _chosen(methods: str, drafts: Sequence[str], adapters: Sequence[Path], text: Path | None) -> Chosen:
    """Raises UnsupportedOption on an unknown method, and on one that is asked for by name but not given.

    ValueError where a file that is given isn't there.
    """
    from ...models.files.locate import locate

    for name, path in [*(("--adapter", one) for one in adapters), ("--vocabulary-text", text)]:
        if path is not None and not path.exists():
            raise ValueError(f"{name} {path}: there is no such file or directory")
    for draft in drafts:
        locate(draft)
    names = _names(methods)
    for name, flag, values in ((DRAFT_MODEL, "--draft-model", drafts), (ADAPTER, "--adapter", adapters)):
        if name in names and not values:
            raise UnsupportedOption(f"method {name!r} needs {flag}")
        if names and values and name not in names:
            raise UnsupportedOption(f"{flag} is of no use without the method {name!r}; add it to --methods")
    return Chosen(
        names or METHODS, tuple(drafts), tuple(str(path) for path in adapters), "" if text is None else str(text)
    )


def _names(methods: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in methods.split(",") if name.strip())


def _run(engine: Engine, setup: Setup, prompts: Sequence[Sequence[int]], log: Path) -> Outcome:
    from ...tune.journal import Journal
    from ...tune.machine import ThisMachine
    from ...tune.run import Tuning
    from ...tune.setup import about_run

    last = ""

    def tick(what: str) -> None:
        nonlocal last
        if what != last:
            note(f"{journal.spent:6.0f} s  {what}")
        last = what

    with Journal(log, about_run(setup, engine, prompts), monotonic) as journal:
        return Tuning(engine, setup, ThisMachine(), journal, tick).run(prompts)


def _publish(
    outcome: Outcome,
    engine: Engine,
    model: str,
    prompts: Path,
    output: Path,
    folder: Path | None,
    given: Mapping[str, Any],
    as_json: bool,
) -> None:
    from ...bench.suite import fingerprint
    from ...engine.system.file import write_system
    from ...engine.system.value import machine_of, target_of
    from ...tune.plots import write_plots
    from ...tune.report import measured, report_of

    told = {
        **report_of(outcome),
        **measured_with(engine, given["weights"]),
        "prompts": {"file": prompts.name, "sha256": fingerprint(prompts)},
    }
    target = target_of(engine, model, given["weights"], given["runner"], given["activations"])
    write_system(outcome.winner.system(target, machine_of(engine), finite(measured(outcome))), output)
    if folder is not None:
        write_text(folder / "summary.txt", "\n".join(told["summary"]))
        write_report(told, folder / "report.json", write_plots)
    if as_json:
        show_json(told)
        return
    _show(told, output)


def _write_held_out(folder: Path, prompts: Path, engine: Engine, held: Sequence[Sequence[int]], raw: bool) -> None:
    """What the winner was judged on, as a suite for forerun bench."""
    from ...engine.prompts.questions import has_chat_template
    from ...tune.setup import lines_of

    chat = not raw and has_chat_template(engine.tokenizer)
    lines = lines_of(prompts, held, lambda question: question.ids((), chat, engine.tokenizer))
    write_text(folder / "held_out.jsonl", "\n".join(lines))


def _show(told: Mapping[str, Any], output: Path) -> None:
    from ...bench.intervals import number

    rows = [
        (
            one["name"],
            _speedup(one),
            number(one["tokens_per_second"], 1),
            number(one["tokens_per_round"], 2),
            str(one["prompts"]),
        )
        for one in told["trials"]
    ]
    show_table(("in the trials", "x plain (95 %)", "tokens/s", "per round", "heats"), rows)
    for sentence in told["summary"]:
        show(sentence)
    show(f"{output}: {told['winner']}")


def _speedup(one: Mapping[str, Any]) -> str:
    if one["speedup"] is None:
        return "-"
    low, high = one["speedup_interval"]
    return f"{one['speedup']:.2f} ({low:.2f} to {high:.2f})"
