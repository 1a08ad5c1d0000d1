"""--system: the method and the way to open the model come from a file instead of from flags."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, final

import typer

from ..errors import UnsupportedOption
from .method import KINDS, Method, method_of
from .shared_options import OPENING, PLAIN, open_engine
from .terminal import note

if TYPE_CHECKING:
    from ..engine.engine import Engine
    from ..engine.system.value import System

SystemFile = Annotated[
    Path | None,
    typer.Option(
        "--system",
        help="A JSON file of a system: it sets the drafter, the policy, and the model's form unless flags do.",
    ),
]


@final
@dataclass(frozen=True, slots=True)
class SystemChoice:
    """A method and the flags to open a model with; system is where they came from, if from a file."""

    method: Method
    given: Mapping[str, Any]
    system: System | None = None

    def open(self, model: str) -> Engine:
        """The engine, and a note where it departs from what the system was tuned on. Raises what System.check raises."""
        if self.system is None:
            return open_engine(model, self.method, self.given)
        engine = self.system.method_on(open_engine(model, PLAIN, self.given))
        tell_departures(self.system, engine, self.given)
        return engine


def choice_of(
    file: Path | None, drafter: str, policy: str | None, context: typer.Context, given: Mapping[str, Any]
) -> SystemChoice:
    """What the flags choose. Raises UnsupportedOption where a method is chosen beside a system, and what method_of does."""
    if file is None:
        return SystemChoice(method_of(drafter, policy, given), given)
    written = [kind for kind in KINDS if _was_written(context, kind)]
    written += [key for key, value in given.items() if "__" in key and value is not None]
    if written:
        name = written[0].removeprefix("either__").replace("__", "_").replace("_", "-")
        raise UnsupportedOption(f"--system brings the drafter and the policy with their options; leave --{name} out")
    from ..engine.system.file import read_system

    system = read_system(file)
    method = Method(system.drafter, system.policy, system.drafter_options, system.policy_options)
    return SystemChoice(method, opening_of(system, given), system)


def opening_of(system: System, given: Mapping[str, Any]) -> dict[str, Any]:
    """The flags, with the system's dtype, weights, runner and activations where a flag stands at its default."""
    from ..engine.system.value import FORM

    defaults = {one.name: one.default for one in OPENING}
    asked = {name: None if given[name] == defaults[name] else given[name] for name in FORM}
    return {**given, **system.opening(asked)}


def tell_departures(system: System, engine: Engine, given: Mapping[str, Any]) -> None:
    if departures := system.departures(engine, given):
        note(departures)


def _was_written(context: typer.Context, parameter: str) -> bool:
    source = context.get_parameter_source(parameter)
    return source is not None and source.name == "COMMANDLINE"
