"""What forerun tune --engine takes beside what forerun tune takes, and what of that is of no use to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import UnsupportedOption
from ...tune.serving.knobs import ENGINES
from ..flags import flag, spelling

PANEL = "Engine"
CONTEXT, KEY_VARIABLE = 4096, "OPENAI_API_KEY"
ENGINE = tuple(
    flag(name, kind, default, PANEL, help)
    for name, kind, default, help in (
        ("engine", str, "", f"Tune this engine's own knobs: {', '.join(ENGINES)}; forerun's drafters if not given."),
        ("concurrency", str, "1", "Numbers of requests at once, separated by commas: 1,8."),
        (
            "endpoint",
            list[str] | None,
            None,
            "Launch nothing, but ask servers that run: off=http://HOST:PORT, and NAME=http://HOST:PORT for each other one.",
        ),
        (
            "program",
            str,
            "",
            "The engine's executable, for transformers a Python; looked for on the PATH if not given.",
        ),
        ("engine_args", str, "", "Further arguments that the engine is started with, in one string."),
        ("port", int, 0, "Where servers listen, one at a time; free ports if not given."),
        ("open_at_once", int, 0, "How many servers may run at once; 3 or 4 if not given."),
        ("context", int, CONTEXT, "The most tokens of a prompt and its answer."),
        ("key_variable", str, KEY_VARIABLE, "The environment variable that holds the API key of --endpoint's servers."),
    )
)
LAUNCHING = ("program", "engine_args", "port", "open_at_once", "context")
DEFAULTS: Mapping[str, Any] = {one.name: one.default for one in ENGINE}


def refuse_engine_flags(given: Mapping[str, Any]) -> None:
    """Raises UnsupportedOption on a flag that needs --engine."""
    for name, default in DEFAULTS.items():
        if name != "engine" and given[name] != default:
            raise UnsupportedOption(f"{spelling(name)} needs --engine, one of {', '.join(ENGINES)}")


def refuse_other_flags(engine: str, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    """Raises UnsupportedOption on a flag that says nothing to another engine."""
    for name, default in defaults.items():
        if given[name] != default:
            raise UnsupportedOption(f"{spelling(name)} is of no use with --engine {engine}; leave it out")


def refuse_launching(options: Mapping[str, Any]) -> None:
    """Raises UnsupportedOption on a flag that says how servers are launched, where none is."""
    own = {name: DEFAULTS[name] for name in LAUNCHING} | {"threads": None, "dtype": None}
    for name, default in own.items():
        if options[name] != default:
            raise UnsupportedOption(
                f"{spelling(name)} launches servers, and --endpoint asks those that run; leave it out"
            )


def refuse_unused(options: Mapping[str, Any]) -> None:
    """Raises UnsupportedOption on a flag that says nothing where engines are launched."""
    unused: dict[str, Any] = {"key_variable": KEY_VARIABLE}
    if options["engine"] == "transformers":
        unused |= {"port": 0, "context": CONTEXT}
    for name, default in unused.items():
        if options[name] != default:
            raise UnsupportedOption(f"{spelling(name)} is of no use to {options['engine']} here; leave it out")


def loads_of(concurrency: str) -> tuple[int, ...]:
    """Of 1,8. Raises ValueError."""
    parts = [part.strip() for part in concurrency.split(",") if part.strip()]
    if not parts or not all(part.isdigit() and int(part) for part in parts):
        raise ValueError(
            f"--concurrency takes numbers from 1 on, separated by commas, such as 1,8; got {concurrency!r}"
        )
    return tuple(sorted({int(part) for part in parts}))


def addresses_of(endpoints: Sequence[str]) -> dict[str, str]:
    """Of NAME=URL, off first. Raises UnsupportedOption where off is missing, or alone."""
    found: dict[str, str] = {}
    for text in endpoints:
        name, _, url = text.partition("=")
        if not url or "/" in name or name in found:
            raise UnsupportedOption(f"--endpoint takes NAME=http://HOST:PORT, each name once, got {text!r}")
        found[name.strip()] = url
    if "off" not in found or len(found) == 1:
        raise UnsupportedOption(
            "--endpoint compares servers that run: one without drafts, off=http://HOST:PORT, and at least one with drafts, "
            f"NAME=http://HOST:PORT; got {', '.join(found) or 'none'}"
        )
    return {"off": found.pop("off"), **found}
