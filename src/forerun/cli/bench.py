"""forerun bench: methods and other engines on a suite of prompts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..bench.plots import write_plots
from ..bench.predict import add_predictions
from ..core.cost import Cost
from ..errors import UnsupportedOption
from ..plotting import check_plotting
from .flags import request_flags, takes
from .output import check_file, check_folder, write_text
from .reports import write_pictures
from .shared_options import OPENING, PLAIN, Model, Raw, measured_with, open_engine
from .system_choice import SystemFile, opening_of, tell_departures
from .terminal import note, progress, show, show_table
from .threads import THREADS

if TYPE_CHECKING:
    from ..bench.peer import PeerSettings
    from ..engine.engine import Engine

Suite = Annotated[Path, typer.Option(help="Prompts as JSON lines in Spec-Bench's format.", show_default=False)]
JsonFile = Annotated[Path | None, typer.Option("--json", help="Write everything measured to this file.")]
Pairs = Annotated[
    list[str] | None, typer.Option(help="A Python for a peer, such as vllm=/path/to/python; may be repeated.")
]
Forms = Annotated[
    list[str] | None,
    typer.Option(help="The model for peers, as gguf=FILE or hf=DIRECTORY; derived from MODEL if not given."),
]


@takes(*OPENING, THREADS, *request_flags(only=("generation_config",)))
def bench(
    model: Model,
    suite: Suite,
    per_category: Annotated[int | None, typer.Option(help="Take at most this many prompts of a category.")] = None,
    categories: Annotated[str, typer.Option(help="Only these categories, separated by commas.")] = "",
    methods: Annotated[
        str, typer.Option(help="default, names of drafters, or JSON files that describe a system, separated by commas.")
    ] = "plain,default",
    system: SystemFile = None,
    peers: Annotated[
        str, typer.Option(help="Other engines: llama.cpp, transformers, vllm, with a mode as in transformers:lookup.")
    ] = "",
    peer_python: Pairs = None,
    peer_model: Forms = None,
    peer_dtype: Annotated[str, typer.Option(help="The number format of peers that read hf directories.")] = "bfloat16",
    max_new_tokens: Annotated[int, typer.Option(help="The most tokens of an answer.")] = 128,
    predict: Annotated[
        bool, typer.Option("--predict", help="Also show predicted speed-ups; calibrates if necessary.")
    ] = False,
    raw: Raw = False,
    plots: Annotated[Path | None, typer.Option(help="Write PNG files into this folder.")] = None,
    json_file: JsonFile = None,
    **given: Any,
) -> None:
    """Measure methods and other engines on the same prompts, one after the other, in changing order."""
    from ..bench.benchmark import Benchmark
    from ..bench.methods import read_methods
    from ..bench.peer import peer_choice
    from ..bench.suite import fingerprint, read_suite
    from ..engine.system.file import read_system

    items, systems = read_suite(suite, per_category, split(categories)), read_methods(split(methods))
    if system is not None:
        systems.append(read_system(system))
        given = opening_of(systems[-1], given)
    choices = [peer_choice(peer) for peer in split(peers)]
    pythons = pairs(peer_python, "--peer-python", [choice.label for choice in choices])
    models = pairs(peer_model, "--peer-model", ["gguf", "hf"])
    _check_places(json_file, plots)
    engine = open_engine(model, PLAIN, given)
    acting = engine.checkpoint_defaults.fields if given["generation_config"] else []
    for one in systems:
        one.check(engine.identity)
        tell_departures(one, engine, given)
    cost = _cost(model, engine, given["weights"]) if predict else None
    settings = _peer_settings(model if choices else None, models, pythons, peer_dtype)
    benchmark = Benchmark(engine, systems, items, choices, settings, max_new_tokens, raw, given["generation_config"])
    with progress("measuring", len(items)) as tick:
        report = benchmark.run(tick, lambda name: note(f"opening {name}"))
    if cost is not None:
        add_predictions(report, cost)
    told = {"file": suite.name, "sha256": fingerprint(suite), "prompts": len(items)}
    limits = {"max_new_tokens": max_new_tokens, "generation_config": acting}
    about = {**measured_with(engine, given["weights"]), "suite": told, **limits}
    _publish({**about, **report}, json_file, plots)


def _check_places(json_file: Path | None, plots: Path | None) -> None:
    """Before anything is measured that couldn't be written."""
    if json_file is not None:
        check_file(json_file)
    if plots is not None:
        check_plotting()
        check_folder(plots)


def _peer_settings(
    model: str | None, models: Mapping[str, str], pythons: Mapping[str, str], dtype: str
) -> PeerSettings:
    """models: where peers find the model, by format; those not named are found from the model where peers take part."""
    import torch

    from ..bench.peer import PeerSettings
    from ..bench.peer_models import peer_models

    found = {} if model is None else peer_models(model, dtype)
    return PeerSettings({**found, **models}, torch.get_num_threads(), dtype, pythons=pythons)


def _cost(model: str, engine: Engine, weights: str) -> Cost:
    """What forwards of the model cost as they will run; measured now if need be."""
    from ..bench.calibration import Opened, calibrated, pad

    opened = Opened(model, engine, weights)
    measured = calibrated(opened)[0].target
    return measured.padded() if pad(opened) else measured


def _publish(report: dict[str, Any], json_file: Path | None, plots: Path | None) -> None:
    """Show the report, and write what was asked for."""
    from ..bench.report import by_category, overall

    show_table(
        *overall(report), title="All prompts: medians with 95 % intervals; totals; x ours: over our plain decoding"
    )
    show_table(*by_category(report), title="By category: median tokens/s and x plain decoding of the same weights")
    for sentence in report["failed"].values():
        show(f"Not run: {sentence}")
    show(
        f"{report['model']}, {report['weights']}, {report['runner']}, {report['hardware']}, {report['threads']} threads, "
        f"{report['suite']['prompts']} prompts, up to {report['max_new_tokens']} tokens, greedy decoding"
    )
    if json_file is not None:
        write_text(json_file, json.dumps(report, indent=1))
    if plots is not None:
        write_pictures(report, plots, write_plots)


def split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def pairs(given: Sequence[str] | None, flag: str, known: Sequence[str]) -> dict[str, str]:
    """NAME=VALUE pairs. Raises UnsupportedOption on another form or a name that nothing here has."""
    found: dict[str, str] = {}
    for pair in given or ():
        name, separator, value = pair.partition("=")
        if not separator or not value:
            raise UnsupportedOption(f"{flag} takes NAME=PATH, got {pair!r}")
        if name not in known:
            raise UnsupportedOption(
                f"{flag} names {name!r}; known here: {', '.join(known) or 'none, as no peer takes part'}"
            )
        found[name] = value
    return found
