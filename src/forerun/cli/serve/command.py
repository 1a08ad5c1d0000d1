"""forerun serve: a model over HTTP, as OpenAI's clients call it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import typer

from ...engine.methods import DEFAULT_DRAFTER
from ..flags import takes
from ..method import method_flags
from ..shared_options import OPENING, RESERVED, Drafter, Model, Policy
from ..system_choice import SystemFile, choice_of
from ..terminal import note
from ..threads import THREADS
from .server_flags import KEY_VARIABLE, NAMES, SERVER, is_local, settings_of

if TYPE_CHECKING:
    from ...engine.engine import Engine

POLICY_UNDER_LOAD = "governor"  # drafts must not cost the others time
# drafters that need no model of their own, which a request may name
OFFERED = ("lookup", "suffix")


@takes(*SERVER, *OPENING, THREADS, *method_flags((*RESERVED, *NAMES)))
def serve(
    context: typer.Context,
    model: Model,
    drafter: Drafter = DEFAULT_DRAFTER,
    policy: Policy = POLICY_UNDER_LOAD,
    system: SystemFile = None,
    **given: Any,
) -> None:
    """Serve a model to OpenAI's clients, with drafts for every request and continuous batching."""
    from ...serve.extra import check_installed

    check_installed()
    choice, settings = choice_of(system, drafter, policy, context, given), settings_of(model, given)
    host, port = given["host"], given["port"]
    if settings.api_key is None and not is_local(host):
        note(f"warning: anyone who reaches {host} may use this server; set {KEY_VARIABLE} to a key for its clients")
    engine = choice.open(model)
    from ...serve.run import run
    from ...serve.service import Service

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    note(f"serving {settings.name} at http://{f'[{host}]' if ':' in host else host}:{port}")
    run(Service(_methods(choice.method.drafter, engine), settings), host, port, given["patience"])


def _methods(chosen: str, engine: Engine) -> Mapping[str, Engine]:
    """The chosen method by its drafter's name, and others that a request may name."""
    found = {chosen: engine}
    for name in OFFERED:
        if name not in found:
            found[name] = engine.using(name, POLICY_UNDER_LOAD)
    return found
