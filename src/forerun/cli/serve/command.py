"""forerun serve: a model over HTTP, as OpenAI's clients call it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ... import __version__
from ...engine.methods import DEFAULT_DRAFTER
from ..flags import takes
from ..method import method_flags
from ..shared_options import OPENING, RESERVED, Drafter, Model, Policy
from ..system_choice import SystemFile, choice_of
from ..terminal import note
from ..threads import THREADS

if TYPE_CHECKING:
    from ...engine.engine import Engine

DEFAULT_POLICY = "governor"  # under load drafts must not cost the others time
KEY_VARIABLE = "FORERUN_API_KEY"
# drafters that need no model of their own are offered to requests by name
OFFERED = ("lookup", "suffix")
LOCAL = ("localhost", "127.0.0.1", "::1")
OWN = ("host", "port", "api_key", "served_name", "max_running", "max_waiting", "max_tokens", "max_choices", "max_body")


@takes(*OPENING, THREADS, *method_flags((*RESERVED, *OWN)))
def serve(
    context: typer.Context,
    model: Model,
    drafter: Drafter = DEFAULT_DRAFTER,
    policy: Policy = DEFAULT_POLICY,
    system: SystemFile = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes a free one.")] = 8000,
    api_key: Annotated[
        str | None, typer.Option(envvar=KEY_VARIABLE, help="What clients must show. Better set in the environment.")
    ] = None,
    served_name: Annotated[str | None, typer.Option(help="The model's name in requests; MODEL's last part.")] = None,
    max_running: Annotated[int, typer.Option(min=1, help="Answers that share forwards.")] = 16,
    max_waiting: Annotated[int, typer.Option(min=0, help="Answers that may wait; beyond that, status 429.")] = 256,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="The most tokens of an answer; the context's.")] = None,
    max_choices: Annotated[int, typer.Option(min=1, help="The most answers of one request (n).")] = 16,
    max_body: Annotated[int, typer.Option(min=1, help="The most bytes of a request.")] = 4 * 1024 * 1024,
    prefill_rows: Annotated[
        int, typer.Option(min=1, help="Tokens of prompts that a forward reads beside running answers.")
    ] = 64,
    cors: Annotated[list[str] | None, typer.Option(help="An origin that browsers may call from.")] = None,
    allow_host: Annotated[list[str] | None, typer.Option(help="Another name under which clients call.")] = None,
    remember: Annotated[
        bool | None,
        typer.Option(help="Let drafters copy from earlier answers, of all clients; on unless others can connect."),
    ] = None,
    log_prompts: Annotated[bool, typer.Option("--log-prompts", help="Let the log hold texts of requests.")] = False,
    patience: Annotated[float, typer.Option(min=0, help="Seconds that answers have to end, when stopped.")] = 30.0,
    **given: Any,
) -> None:
    """Serve a model to OpenAI's clients, with drafts for every request and continuous batching."""
    from ...serve.extra import check_installed

    check_installed()
    choice = choice_of(system, drafter, policy, context, given)
    from ...serve.run import run
    from ...serve.service import Service
    from ...serve.settings import Settings

    local = _is_local(host)
    settings = Settings(
        name=served_name or Path(model).name or model,
        api_key=api_key,
        most_running=max_running,
        most_waiting=max_waiting,
        most_tokens=max_tokens,
        most_choices=max_choices,
        most_bytes=max_body,
        prefill_rows=prefill_rows,
        cors=tuple(cors or ()),
        # a page of another site can make its name stand for this machine
        hosts=(*LOCAL, host, *(allow_host or ())) if local else None,
        remember=local if remember is None else remember,
        log_prompts=log_prompts,
        version=__version__,
    )
    if not local and api_key is None:
        note(
            f"warning: anyone who reaches {host} may use this server; set {KEY_VARIABLE} to a key that clients must show"
        )
    engine = choice.open(model)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    service = Service(_methods(choice.method.label, engine), settings)
    note(f"serving {settings.name} at http://{f'[{host}]' if ':' in host else host}:{port}")
    run(service, host, port, patience)


def _methods(label: str, engine: Engine) -> Mapping[str, Engine]:
    """The chosen method, and others that a request may name."""
    found = {label.partition(",")[0]: engine}
    for name in OFFERED:
        found.setdefault(name, engine.using(name, DEFAULT_POLICY))
    return found


def _is_local(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
