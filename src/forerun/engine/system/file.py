"""Systems as JSON files.

    {"drafter": {"name": "self", "exit_layer": 8}, "policy": {"name": "threshold", "confidence": 0.6}}

is a method for any model; "name" and "policy" may be left out. With "forerun_system": 1 the file may also hold "target",
"tuned_on" and "measured", as forerun tune writes them. Relative paths start from the file's own folder.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ...core.identity import Identity
from ...drafters.registry import DRAFTERS
from ...errors import UnsupportedOption
from ...models.files.whole import write_whole
from ...models.packed.plan import check_activations
from ...policies.registry import POLICIES
from ..methods import policy_for
from .value import FORM, System, Target

FORMAT = 1
MARK = "forerun_system"
ENGINE_MARK = "forerun_engine_system"  # another engine's settings, as forerun tune --engine writes them
METHOD = ("name", "drafter", "policy")
WHOLE = (MARK, *METHOD, "target", "tuned_on", "measured")
TARGET = ("model", "identity", *FORM)
# options of drafters and policies that name a file; those of MODELS may be a hub's or a bundled name as well
FILES = ("adapter", "head", "classifier", "plan", "vocabulary_text", "costs")
MODELS = ("model",)
EXAMPLE = '{"drafter": {"name": "lookup"}, "policy": {"name": "fixed", "k": 8}}'


def read_system(path: str | Path) -> System:
    """The system in a file. Raises ValueError on what is none, UnsupportedOption on a key, method or option unknown here."""
    path = Path(path)
    data = _read(path)
    try:
        return system_in(data, path)
    except ValueError as error:
        raise type(error)(f"{path}: {error}") from error


def write_system(system: System, path: str | Path) -> None:
    """Write a system; paths into the file's folder become relative to it, others absolute.

    Nothing half written is left, and a file that is there is replaced. Raises ValueError where that fails.
    """
    path = Path(path)
    told = {MARK: FORMAT, **_with_paths(system.as_dict(), lambda name, value: _kept(name, value, path.parent))}
    try:
        text = json.dumps(told, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        if path.exists() and not path.is_file():
            path.write_text(text, encoding="utf-8")  # a device or a pipe is written to and stays what it is
            return
        write_whole(path, text)
    except (OSError, TypeError, ValueError) as error:
        raise ValueError(f"can't write the system {system.name!r} to {path}: {error}") from error


def _read(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"can't read the system file {path}: {error}") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is not JSON ({error}); a system looks like {EXAMPLE}") from error
    if isinstance(data, dict) and ENGINE_MARK in data:
        raise ValueError(
            f"{path} holds settings of {data.get('engine')}, not of forerun; start that by {path}.launch.sh"
        )
    if not isinstance(data, dict) or not {"drafter", MARK} & data.keys():
        raise ValueError(f"{path} describes no system; one looks like {EXAMPLE}")
    return data


def system_in(data: Mapping[str, Any], path: Path) -> System:
    """The system that an object describes as a file's content. Raises as read_system does, without the file's name."""
    if data.get(MARK, FORMAT) != FORMAT:
        raise ValueError(f"a system of format {data[MARK]!r}, and this forerun reads {FORMAT}; tune again")
    _check_keys(data, WHOLE if MARK in data else METHOD, "key")
    found = _with_paths(data, lambda name, value: _found(name, value, path.parent))
    drafter, drafter_options = _named(found, "drafter")
    policy, policy_options = _named(found, "policy") if "policy" in found else (policy_for(drafter, None), {})
    DRAFTERS.check(drafter, drafter_options)
    POLICIES.check(policy, policy_options)
    return System(
        str(data.get("name", path.stem)),
        drafter,
        drafter_options,
        policy,
        policy_options,
        _target(found["target"]) if "target" in found else None,
        _object(found, "tuned_on"),
        _object(found, "measured"),
    )


def _named(data: Mapping[str, Any], kind: str) -> tuple[str, dict[str, Any]]:
    part = data.get(kind)
    if not isinstance(part, dict) or not isinstance(part.get("name"), str):
        raise ValueError(f'"{kind}" must be an object with a "name", got {json.dumps(part)[:60]}')
    options = {key: tuple(value) if isinstance(value, list) else value for key, value in part.items() if key != "name"}
    return part["name"], options


def _target(part: Any) -> Target:
    if not isinstance(part, dict) or not isinstance(part.get("model"), str):
        raise ValueError(f'"target" must be an object with a "model", got {json.dumps(part)[:60]}')
    _check_keys(part, TARGET, "key of the target")
    identity = Identity.from_dict(_object(part, "identity"))
    form = {name: part[name] for name in FORM if part.get(name) is not None}
    if (bits := form.get("activations")) is not None:
        check_activations(bits)
    for name, value in form.items():
        if not isinstance(value, str) and name != "activations":
            raise ValueError(f'"{name}" of the target must be a name, got {json.dumps(value)[:60]}')
    return Target(part["model"], identity, **form)


def _object(data: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = data.get(key, {})
    if not isinstance(value, dict):
        raise ValueError(f'"{key}" must be an object, got {json.dumps(value)[:60]}')
    return value


def _check_keys(data: Mapping[str, Any], known: tuple[str, ...], what: str) -> None:
    if unknown := sorted(set(data) - set(known)):
        raise UnsupportedOption(f"unknown {what} {unknown[0]!r}; known: {', '.join(known)}")


def _with_paths(data: Mapping[str, Any], change: Callable[[str, str], str]) -> dict[str, Any]:
    """The data with every name of a file or of a model changed."""
    changed = dict(data)
    for kind in ("drafter", "policy", "target"):
        part = data.get(kind)
        if isinstance(part, dict):
            changed[kind] = {
                name: change(name, value) if name in (*FILES, *MODELS) and isinstance(value, str) and value else value
                for name, value in part.items()
            }
    return changed


def _found(name: str, value: str, folder: Path) -> str:
    path = folder / Path(value).expanduser()
    return str(path) if name in FILES or path.exists() else value


def _kept(name: str, value: str, folder: Path) -> str:
    path = Path(value).expanduser()
    if name in MODELS and not path.exists():
        return value
    path, folder = path.resolve(), folder.resolve()
    return str(path.relative_to(folder) if path.is_relative_to(folder) else path)
