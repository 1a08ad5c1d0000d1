"""forerun train answers --endpoint: a server answers the prompts."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import UnsupportedOption
from ...jsonl import Skipped
from ..terminal import note

if TYPE_CHECKING:
    from ...train.data.answers import AnswerOptions

PANEL = "Endpoint"
EndpointUrl = Annotated[
    str,
    typer.Option("--endpoint", help="Ask this server: http://HOST:PORT, with or without /v1.", rich_help_panel=PANEL),
]
ServedModel = Annotated[
    str,
    typer.Option("--served-model", help="The model's name there, if it serves several.", rich_help_panel=PANEL),
]
InFlight = Annotated[
    int, typer.Option(min=1, help="The number of requests that the server has at once.", rich_help_panel=PANEL)
]
KeyVariable = Annotated[
    str, typer.Option(help="The environment variable that holds the server's API key.", rich_help_panel=PANEL)
]
DEFAULT_VARIABLE = "OPENAI_API_KEY"


@dataclass(frozen=True, slots=True)
class Server:
    """What the command line says of it."""

    url: str
    served: str
    in_flight: int
    key_variable: str


def answers_of(
    server: Server,
    model: str,
    prompts: Path,
    output: Path,
    options: AnswerOptions,
    unwanted: Collection[str],
    skipped: Skipped | None,
    given: Mapping[str, Any],
) -> Iterator[tuple[int, int, int]]:
    """As train.data.answers.answer. Raises UnsupportedOption, EndpointFailed before anything is asked."""
    from ...models.loading.given_tokenizer import as_tokenizer
    from ...train.data.endpoint import Endpoint
    from ...train.data.remote_answers import answer_remotely

    key = os.environ.get(server.key_variable)
    if key is None and server.key_variable != DEFAULT_VARIABLE:
        raise UnsupportedOption(f"the environment has no variable {server.key_variable}, which --key-variable names")
    endpoint = Endpoint(server.url, key)
    served = endpoint.model(server.served)
    tokenizer = as_tokenizer(model, bool(given.get("trust_remote_code")))
    note(f"asking {served} at {endpoint.url}, up to {server.in_flight} at once")
    return answer_remotely(endpoint, served, tokenizer, prompts, output, options, unwanted, server.in_flight, skipped)
