"""The flags of a server, and the settings that they make."""

from __future__ import annotations

import os
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..flags import flag

if TYPE_CHECKING:
    from ...serve.settings import Settings

KEY_VARIABLE = "FORERUN_API_KEY"
LOCAL = ("localhost", "127.0.0.1", "::1")

SERVER = tuple(
    flag(name, kind, default, "Server", help)
    for name, kind, default, help in (
        ("host", str, "127.0.0.1", "The address to listen on."),
        ("port", int, 8000, "The port; 0 takes a free one."),
        ("api_key", str | None, None, f"What clients must show; better set as {KEY_VARIABLE} in the environment."),
        ("served_name", str | None, None, "The model's name in requests; the last part of MODEL if not given."),
        ("max_running", int, 16, "Answers that share forwards."),
        ("max_waiting", int, 256, "Answers that may wait; further requests are refused (429)."),
        (
            "max_tokens",
            int | None,
            None,
            "The most tokens that an answer may have; what the context holds if not given.",
        ),
        ("max_choices", int, 16, "The most answers of one request (n)."),
        ("max_body", int, 4 * 1024 * 1024, "The most bytes of a request."),
        ("prefill_rows", int | None, None, "Tokens of prompts in a forward: fewer delay running answers less."),
        ("patience", float, 30.0, "Seconds that answers have to end when the server is stopped."),
        ("cors", list[str] | None, None, "An origin whose pages may call; may be given several times."),
        ("allow_host", list[str] | None, None, "Another name under which a local server may be called; likewise."),
        (
            "remember",
            bool | None,
            None,
            "Let drafters copy from earlier answers, whoever they were for; on if only this machine can connect.",
        ),
        ("log_prompts", bool, False, "Let the log hold texts of requests."),
    )
)
NAMES = tuple(one.name for one in SERVER)


def settings_of(model: str, given: Mapping[str, Any]) -> Settings:
    """Raises ValueError on a number out of its range."""
    from ... import __version__
    from ...serve.settings import Settings

    host, port = given["host"], given["port"]
    if not 0 <= port <= 65535:
        raise ValueError(f"--port must be 0 to 65535, got {port}")
    if not given["patience"] >= 0:
        raise ValueError(f"--patience must be at least 0 seconds, got {given['patience']}")
    local = is_local(host)
    return Settings(
        name=given["served_name"] or Path(model).name or model,
        api_key=given["api_key"] or os.environ.get(KEY_VARIABLE) or None,
        most_running=given["max_running"],
        most_waiting=given["max_waiting"],
        most_tokens=given["max_tokens"],
        most_choices=given["max_choices"],
        most_bytes=given["max_body"],
        prefill_rows=given["prefill_rows"],
        cors=tuple(given["cors"] or ()),
        # a page of another site can make its name stand for this machine
        hosts=(*LOCAL, host, *(given["allow_host"] or ())) if local else None,
        remember=local if given["remember"] is None else given["remember"],
        log_prompts=given["log_prompts"],
        version=__version__,
    )


def is_local(host: str) -> bool:
    """Whether only this machine reaches the address."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
