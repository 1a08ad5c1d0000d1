"""forerun tune --engine: the best knobs of another engine for a model, prompts and loads, as a launch command."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, final

from ...errors import UnsupportedOption
from ..output import check_file, check_folder, write_text
from ..terminal import finite, note, show, show_json, show_table
from ..threads import cores
from .engine_options import addresses_of, loads_of, refuse_launching, refuse_unused

if TYPE_CHECKING:
    from ...tune.serving.asking import Prompt
    from ...tune.serving.field import Field
    from ...tune.serving.knobs import Knobs, Wanted
    from ...tune.serving.run import ServingOutcome, ServingSetup
    from ...tune.serving.serving_engine import Launch, ServingEngine


@final
@dataclass(frozen=True, slots=True)
class Files:
    """report: a folder, or None."""

    prompts: Path
    output: Path
    report: Path | None

    def beside(self, ending: str) -> Path:
        return self.output.with_name(f"{self.output.name}.{ending}")


@final
@dataclass(frozen=True, slots=True)
class Entry:
    """What takes part. launch: None where servers run already. version: of the engine, where it is known."""

    engine: ServingEngine | None
    launch: Launch | None
    first: Sequence[Knobs]
    about: Mapping[str, Any]
    version: str = ""
    lacking: Mapping[str, str] | None = None


def tune_knobs(
    model: str, files: Files, wanted: Wanted, budget: float, options: Mapping[str, Any], raw: bool, as_json: bool
) -> None:
    """options: of the engine, and max_new_tokens, seed, dtype, threads."""
    from ...tune.serving.run import ServingSetup

    check_file(files.output)
    if files.report is not None:
        check_folder(files.report)
    loads = loads_of(options["concurrency"])
    setup = ServingSetup(wanted, budget, loads, options["max_new_tokens"], options["seed"])
    entry = _running(model, wanted, options) if options["endpoint"] else _entry(model, wanted, loads, options)
    tokenizer, prompts = _prompts(files.prompts, entry, raw)
    outcome = _run(entry, setup, files, prompts, options, tokenizer)
    _publish(entry, setup, outcome, files, prompts, as_json)


def _entry(model: str, wanted: Wanted, loads: Sequence[int], options: Mapping[str, Any]) -> Entry:
    from ...tune.serving.engines import engine_named
    from ...tune.serving.models import model_for
    from ...tune.serving.programs import found_program
    from ...tune.serving.serving_engine import Launch

    engine = engine_named(options["engine"])
    refuse_unused(options)
    own = sys.executable if engine.name == "transformers" else engine.program
    program = found_program(options["program"] or own, engine.name)
    version = engine.version(program)
    launch = Launch(
        engine.startable(program),
        model_for(engine.form, model, options["dtype"]),
        max(loads),
        options["context"],
        options["threads"],
        options["dtype"] or "",
        tuple(shlex.split(options["engine_args"])),
    )
    lacking = dict(engine.lacking(program))
    for name in wanted.methods:
        if name in lacking:
            raise UnsupportedOption(lacking[name])
    if "draft-model" in wanted.methods and not wanted.draft_models:
        raise UnsupportedOption("method 'draft-model' needs --draft-model")
    usable = replace(wanted, methods=tuple(one for one in wanted.of(engine.methods, engine.name) if one not in lacking))
    engine.check(launch, usable)
    about = {"engine": engine.name, "version": version, "launch": asdict(launch), "wanted": asdict(usable)}
    return Entry(engine, launch, engine.first(usable), about, version, lacking)


def _running(model: str, wanted: Wanted, options: Mapping[str, Any]) -> Entry:
    from ...tune.serving.engines import engine_named
    from ...tune.serving.knobs import Knobs

    engine = engine_named(options["engine"])
    if engine.name == "transformers":
        raise UnsupportedOption("transformers has no server that --endpoint could ask; leave --endpoint out")
    refuse_launching(options)
    if wanted.methods or wanted.draft_models:
        raise UnsupportedOption("--methods and --draft-model launch servers, and --endpoint asks those that run")
    addresses = addresses_of(options["endpoint"])
    first = [
        Knobs("endpoint", name, place, {"endpoint": url})
        for place, (name, url) in enumerate(addresses.items())
        if name != "off"
    ]
    return Entry(None, None, first, {"engine": engine.name, "model": model, "endpoints": addresses})


def _prompts(file: Path, entry: Entry, raw: bool) -> tuple[Any, list[Prompt]]:
    from ...engine.prompts.questions import has_chat_template, read_questions

    tokenizer, chat = None, not raw
    if entry.launch is not None and entry.about["engine"] == "transformers":
        from ...models.loading.given_tokenizer import as_tokenizer

        tokenizer = as_tokenizer(entry.launch.model, False)
        chat = chat and has_chat_template(tokenizer)
    return tokenizer, [question.prompt((), chat) for question in read_questions(file)]


def _field(entry: Entry, setup: ServingSetup, options: Mapping[str, Any], tokenizer: Any) -> Field:
    from ...tune.serving.asking import Address
    from ...tune.serving.field import Launched, Running
    from ...tune.serving.subjects import Served, Subject, launched

    if entry.engine is None or entry.launch is None:
        from ...tune.serving.engines import engine_named

        fields, key = engine_named(entry.about["engine"]).fields(), os.environ.get(options["key_variable"], "")
        return Running(
            {
                name: Served(Address(url, fields, key), setup.max_new_tokens)
                for name, url in entry.about["endpoints"].items()
            }
        )
    engine, launch = entry.engine, entry.launch
    most = 1 if options["port"] else options["open_at_once"] or engine.most_open

    def opened(knobs: Knobs) -> Subject:
        note(f"starting {engine.name} with {knobs.name}")
        return launched(engine, launch, knobs, setup.max_new_tokens, options["port"], tokenizer)

    return Launched(opened, most)


def _run(
    entry: Entry,
    setup: ServingSetup,
    files: Files,
    prompts: Sequence[Prompt],
    options: Mapping[str, Any],
    tokenizer: Any,
) -> ServingOutcome:
    from ...tune.journal import Journal
    from ...tune.serving.asking import EngineFailed
    from ...tune.serving.run import about_prompts, tune_engine

    about = {
        **entry.about,
        "loads": list(setup.loads),
        "max_new_tokens": setup.max_new_tokens,
        "seed": setup.seed,
        "prompts": about_prompts(prompts),
    }
    log = files.beside("log.jsonl")
    with Journal(log, about, monotonic) as journal:
        entered = _field(entry, setup, options, tokenizer)
        try:
            return tune_engine(
                entry.engine,
                setup,
                entered,
                journal,
                prompts,
                entry.first,
                lambda what: note(f"{journal.spent:6.0f} s  {what}"),
            )
        except EngineFailed as error:
            raise EngineFailed(
                f"{error}; what was measured is kept in {log}, and the same command goes on from there"
            ) from error
        finally:
            entered.close()


def _publish(
    entry: Entry, setup: ServingSetup, outcome: ServingOutcome, files: Files, prompts: Sequence[Prompt], as_json: bool
) -> None:
    import json

    from ...engine.hardware import hardware
    from ...tune.serving.report import engine_system, report_of, script
    from ...tune.serving.run import split_prompts

    launching: dict[str, Any] = {"engine": entry.about["engine"]}
    if entry.engine is not None and entry.launch is not None:
        command = entry.engine.command(entry.launch, outcome.winner)
        environment = dict(entry.engine.environment(entry.launch))
        launching |= {"launch": asdict(entry.launch), "command": command, "environment": environment}
        path = files.beside("launch.sh")
        write_text(path, script(outcome.winner.name, command, environment).rstrip("\n"))
        path.chmod(0o755)
    else:
        launching |= {"endpoint": entry.about["endpoints"][outcome.winner.name]}
    tuned_on = {
        "engine_version": entry.version,
        "hardware": hardware(),
        "cores": cores(),
        "threads": None if entry.launch is None else entry.launch.threads,
        "concurrency": list(setup.loads),
    }
    told = {
        **report_of(outcome),
        "failed": {**(entry.lacking or {}), **outcome.failed},
        **launching,
        **tuned_on,
        "command_line": shlex.join(["forerun", *sys.argv[1:]]),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "load_average": list(os.getloadavg()),
    }
    told["summary"] += [f"Not tried: {name} ({reason})." for name, reason in (entry.lacking or {}).items()]
    system = finite(engine_system(outcome, launching, tuned_on))
    write_text(files.output, json.dumps(system, indent=1, ensure_ascii=False, allow_nan=False))
    if files.report is not None:
        held = [_line(one) for one in split_prompts(prompts, setup.seed)[1]]
        write_text(files.report / "held_out.jsonl", "\n".join(held))
        write_text(files.report / "summary.txt", "\n".join(told["summary"]))
        write_text(files.report / "report.json", json.dumps(finite(told), indent=1, allow_nan=False))
    if as_json:
        show_json(told)
        return
    _show(told, files)


def _line(prompt: Prompt) -> str:
    import json

    return json.dumps({"prompt": prompt} if isinstance(prompt, str) else {"messages": prompt}, ensure_ascii=False)


def _show(told: Mapping[str, Any], files: Files) -> None:
    from ...bench.intervals import number

    loads = [str(load) for load in told["concurrency"]]
    rows = []
    for one in told["second"] or told["first"]:
        at = [one["by_load"][load] for load in loads]
        rates = [number(each["tokens_per_second"], 1) for each in at]
        ratios = [number(each["speedup"], 2) for each in at]
        shares = [number(one["acceptance"], 2), number(one["equal_texts"], 2), str(one["heats"])]
        rows.append((one["name"], *(part for pair in zip(rates, ratios, strict=True) for part in pair), *shares))
    columns = (part for load in loads for part in (f"tokens/s at {load}", f"x off at {load}"))
    show_table(("in the trials", *columns, "accepted", "equal texts", "heats"), rows)
    for sentence in told["summary"]:
        show(sentence)
    if "command" in told:
        more = "PROMPT" if told["engine"] == "transformers" else "--port PORT"
        show(f"To launch it: {files.beside('launch.sh')} {more}")
    show(f"{files.output}: {told['winner']}")
