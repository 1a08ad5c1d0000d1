"""forerun bench: methods and other engines on a suite of prompts."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..bench.plots import write_plots
from ..bench.predict import add_predictions
from ..core.cost import Cost
from ..plotting import check_plotting
from .flags import request_flags, takes
from .output import check_file, check_folder, write_text
from .peer_options import Concurrency, PeerDrafts, PeerModels, Peers, PeerSettingPairs, Pythons, pairs, settings_of
from .reports import write_pictures
from .shared_options import OPENING, PLAIN, Model, Raw, measured_with, open_engine
from .system_choice import SystemFile, opening_of, tell_departures
from .terminal import note, progress, show, show_table
from .threads import THREADS

if TYPE_CHECKING:
    from ..bench.peer import PeerChoice, PeerSettings
    from ..engine.engine import Engine
    from ..engine.system.value import System

Suite = Annotated[Path, typer.Option(help="Prompts as JSON lines in Spec-Bench's format.", show_default=False)]
AllTurns = Annotated[
    bool, typer.Option("--all-turns", help="Ask every turn, after the model's own answers to those before it.")
]
JsonFile = Annotated[Path | None, typer.Option("--json", help="Write everything measured to this file.")]


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
    peers: Peers = "",
    peer_python: Pythons = None,
    peer_model: PeerModels = None,
    peer_draft: PeerDrafts = None,
    peer_setting: PeerSettingPairs = None,
    peer_dtype: Annotated[str, typer.Option(help="The number format of peers that read hf directories.")] = "bfloat16",
    max_new_tokens: Annotated[int, typer.Option(help="The most tokens of an answer.")] = 128,
    all_turns: AllTurns = False,
    concurrency: Concurrency = "1",
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
    from .tune.engine_options import loads_of

    items, systems = read_suite(suite, per_category, split(categories)), read_methods(split(methods))
    if system is not None:
        systems.append(read_system(system))
        given = opening_of(systems[-1], given)
    choices = [peer_choice(peer) for peer in split(peers)]
    named = _named(choices, peer_python, peer_model, peer_draft, peer_setting)
    loads = loads_of(concurrency)
    _check_places(json_file, plots)
    engine = open_engine(model, PLAIN, given)
    acting = engine.checkpoint_defaults.fields if given["generation_config"] else []
    _check_systems(systems, engine, given)
    cost = _cost(model, engine, given["weights"]) if predict else None
    settings = _peer_settings(model if choices else None, peer_dtype, named)
    benchmark = Benchmark(
        engine, systems, items, choices, settings, max_new_tokens, raw, given["generation_config"], all_turns, loads
    )
    load = os.getloadavg()
    with progress("measuring", benchmark.ticks) as tick:
        report = benchmark.run(tick, lambda name: note(f"opening {name}"))
    if cost is not None:
        add_predictions(report, cost)
    told = {"file": suite.name, "sha256": fingerprint(suite), "prompts": benchmark.count, "all_turns": all_turns}
    limits = {"max_new_tokens": max_new_tokens, "generation_config": acting, "load": [*load, *os.getloadavg()]}
    about = {**measured_with(engine, given["weights"]), "suite": told, **limits}
    _publish({**about, **report}, json_file, plots)


def _check_systems(systems: Sequence[System], engine: Engine, given: Mapping[str, Any]) -> None:
    for one in systems:
        one.check(engine.identity)
        tell_departures(one, engine, given)


def _check_places(json_file: Path | None, plots: Path | None) -> None:
    """Before anything is measured that couldn't be written."""
    if json_file is not None:
        check_file(json_file)
    if plots is not None:
        check_plotting()
        check_folder(plots)


def _named(
    choices: Sequence[PeerChoice],
    pythons: Sequence[str] | None,
    models: Sequence[str] | None,
    drafts: Sequence[str] | None,
    settings: Sequence[str] | None,
) -> dict[str, Any]:
    """What the flags name for these peers, as PeerSettings holds it."""
    chosen = [choice.peer for choice in choices]
    return {
        "pythons": pairs(pythons, "--peer-python", chosen),
        "models": pairs(models, "--peer-model", ["gguf", "hf", *(choice.model for choice in choices if choice.model)]),
        "drafts": pairs(drafts, "--peer-draft", ("hf", "gguf") if choices else ()),
        "extra": settings_of(settings, chosen),
    }


def _peer_settings(model: str | None, dtype: str, named: Mapping[str, Any]) -> PeerSettings:
    """Where peers find a model that isn't named, by format, is found from the model where peers take part."""
    import torch

    from ..bench.peer import PeerSettings
    from ..bench.peer_models import peer_models

    found = {} if model is None else peer_models(model, dtype)
    return PeerSettings(
        threads=torch.get_num_threads(), dtype=dtype, **{**named, "models": {**found, **named["models"]}}
    )


def _cost(model: str, engine: Engine, weights: str) -> Cost:
    """What forwards of the model cost as they will run; measured now if need be."""
    from ..bench.calibration import Opened, calibrated, pad

    opened = Opened(model, engine, weights)
    measured = calibrated(opened)[0].target
    return measured.padded() if pad(opened) else measured


def _publish(report: dict[str, Any], json_file: Path | None, plots: Path | None) -> None:
    """Show the report, and write what was asked for."""
    from ..bench.load.rows import load_table
    from ..bench.ratios import against_others
    from ..bench.report import by_category, other_engines, overall

    show_table(
        *overall(report), title="All prompts: medians with 95 % intervals; totals; x ours: over our plain decoding"
    )
    show_table(*by_category(report), title="By category: median tokens/s and x plain decoding of the same weights")
    engines = other_engines(report)
    if engines[1]:
        show_table(*engines, title=f"Other engines, each with {report['threads']} threads")
        show_table(
            *against_others(report), title="Tokens/s over other engines', with 95 % intervals; totals by category"
        )
    if report.get("loads"):
        show_table(*load_table(report), title="Prompts at once: tokens/s of all together, reading included")
    for sentence in (*report["failed"].values(), *report.get("not_loaded", {}).values()):
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
