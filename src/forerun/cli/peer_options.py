"""Options that say how other engines run: in which Python, on which files, with which settings of their own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from ..errors import UnsupportedOption

Peers = Annotated[
    str,
    typer.Option(
        help="Other engines: llama.cpp, llama-server, openvino, transformers, vllm; with a mode as in transformers:lookup, "
        "on a model of --peer-model as in llama.cpp@q4_0:plain."
    ),
]
Pythons = Annotated[
    list[str] | None, typer.Option(help="A Python for a peer, such as vllm=/path/to/python; may be repeated.")
]
PeerModels = Annotated[
    list[str] | None,
    typer.Option(
        help="A model for peers: gguf=FILE or hf=DIRECTORY, derived from MODEL if not given; or NAME=PATH for those that "
        "peers name after an @; may be repeated."
    ),
]
PeerDrafts = Annotated[
    list[str] | None,
    typer.Option(
        help="A draft model for peers, as forerun export draft writes it: hf=DIRECTORY for transformers:assistant and "
        "vllm:draft-model, gguf=FILE for llama-server:draft-model and list; may be repeated."
    ),
]
Concurrency = Annotated[
    str,
    typer.Option(
        help="Also answer so many prompts at once, separated by commas: 1,8. Peers that take one at a time are left out."
    ),
]
PeerSettingPairs = Annotated[
    list[str] | None,
    typer.Option(
        help="A setting of a peer's worker, such as llama-server.program=PATH or "
        """'vllm.ngram={"num_speculative_tokens": 3}'; may be repeated."""
    ),
]


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


def settings_of(given: Sequence[str] | None, known: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Settings by peer from PEER.NAME=VALUE, where VALUE is JSON or else taken as text. Raises UnsupportedOption."""
    found: dict[str, dict[str, Any]] = {}
    for pair in given or ():
        place, separator, value = pair.partition("=")
        peer, dot, name = place.rpartition(".")
        if not (separator and dot and peer and name):
            raise UnsupportedOption(f"--peer-setting takes PEER.NAME=VALUE, got {pair!r}")
        if peer not in known:
            raise UnsupportedOption(
                f"--peer-setting names {peer!r}; known here: {', '.join(known) or 'none, as no peer takes part'}"
            )
        found.setdefault(peer, {})[name] = _value(value)
    return found


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
