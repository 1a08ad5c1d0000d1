"""What forerun has to know of an engine to tune it: its knobs, and how it is started with them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from .knobs import Knobs, Wanted


@final
@dataclass(frozen=True, slots=True)
class Launch:
    """Beside its knobs, what an engine is started with.

    program: its executable, or the Python that has it. model: in the form that it reads. at_once: the most requests.
    context: the most tokens of a prompt and its answer. more: further arguments of the user's, as they are.
    """

    program: str
    model: str
    at_once: int = 1
    context: int = 4096
    threads: int | None = None
    dtype: str = ""
    more: tuple[str, ...] = ()


class ServingEngine(ABC):
    """form: hf or gguf, what it reads. program: what it is called on the PATH. methods: of drafting, the simplest first.

    most_open: how many of it run at once at most, where nothing is said.
    """

    name: str
    form: str
    program: str
    methods: tuple[str, ...]
    most_open: int

    @abstractmethod
    def version(self, program: str) -> str:
        """What runs there. Raises UnsupportedOption where it is missing, too old, or something else."""

    @abstractmethod
    def check(self, launch: Launch, wanted: Wanted) -> None:
        """Raises UnsupportedOption on what can't run with this model, such as a draft model of another vocabulary."""

    def startable(self, program: str) -> str:
        """What to start in place of the program."""
        return program

    def lacking(self, program: str) -> Mapping[str, str]:
        """Methods that this installation can't run, with the reason."""
        return {}

    @abstractmethod
    def first(self, wanted: Wanted) -> list[Knobs]:
        """One or two settings of every method."""

    @abstractmethod
    def near(self, knobs: Knobs) -> list[Knobs]:
        """Settings of the same method beside these, the likeliest to be better first."""

    @abstractmethod
    def command(self, launch: Launch, knobs: Knobs) -> list[str]:
        """What starts it so; it ends with nothing that a port can't follow. For transformers, a program that answers."""

    def environment(self, launch: Launch) -> Mapping[str, str]:
        """Variables that the command needs beside those that are set."""
        return {}

    def place(self, port: int) -> Sequence[str]:
        """The arguments that a trial adds to the command: where it listens, and that it keeps nothing of earlier prompts."""
        return ("--host", "127.0.0.1", "--port", str(port))

    def fields(self) -> Mapping[str, Any]:
        """What every request says beside the prompt and the length."""
        return {}

    def complaint(self, log: str) -> str | None:
        """Why a server that came up doesn't draft as it was told, by its log; None where it does."""
        return None

    def merged(self, by_load: Mapping[int, Knobs]) -> Knobs | None:
        """One setting that does at each number of requests what is best there; None where the engine has no such."""
        return None
