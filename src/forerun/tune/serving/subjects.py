"""What answers prompts in a trial: a server that this run launched, one that is there already, or transformers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter
from typing import Any, final

from ...bench.backend import PeerFailed
from ...bench.worker import WORKERS, Worker
from ...engine.prompts.forms import encode
from .asking import Address, Answered, EngineFailed, Prompt, Unreachable, answered
from .knobs import Knobs
from .process import Server, port_for
from .serving_engine import Launch, ServingEngine
from .transformers import Transformers

GREETING = "Say hello to the world."
OPEN_SECONDS, ANSWER_SECONDS = 900.0, 600.0
ENDING_SECONDS = 5.0  # between a connection that breaks and the end of its server


class Subject(ABC):
    """Answers up to a number of tokens that was fixed when it was opened."""

    @abstractmethod
    def answer(self, prompts: Sequence[Prompt], at_once: int) -> Answered:
        """Greedy answers to the prompts, so many at once. Raises EngineFailed."""

    def close(self) -> None:  # noqa: B027
        """End what was launched."""


@final
class Served(Subject):
    """A server; one that was launched ends with it."""

    def __init__(self, address: Address, max_new_tokens: int, server: Server | None = None) -> None:
        self._address, self._new, self._server = address, max_new_tokens, server

    def answer(self, prompts: Sequence[Prompt], at_once: int) -> Answered:
        try:
            return self._address.answer(prompts, at_once, self._new)
        except Unreachable as error:
            if self._server is not None and self._server.ends(ENDING_SECONDS):
                raise EngineFailed(f"{self._server.name} ended in the middle ({self._server.reason()})") from error
            raise

    def close(self) -> None:
        if self._server is not None:
            self._server.close()


@final
class Generating(Subject):
    """transformers' generate in a process; drafts aren't counted, since it doesn't tell."""

    def __init__(self, worker: Worker, tokenizer: Any, max_new_tokens: int) -> None:
        self._worker, self._tokenizer, self._new = worker, tokenizer, max_new_tokens

    def answer(self, prompts: Sequence[Prompt], at_once: int) -> Answered:
        begun, texts, tokens = perf_counter(), [], 0
        for prompt in prompts:
            ids = encode(prompt, self._tokenizer)
            try:
                told = self._worker.ask({"do": "answer", "ids": ids, "max_new_tokens": self._new}, ANSWER_SECONDS)
            except PeerFailed as error:
                raise EngineFailed(str(error)) from error
            texts.append(" ".join(map(str, told["ids"])))
            tokens += len(told["ids"])
        return answered(texts, tokens, perf_counter() - begun, 0, 0)

    def close(self) -> None:
        self._worker.close()


def launched(
    engine: ServingEngine, launch: Launch, knobs: Knobs, max_new_tokens: int, port: int = 0, tokenizer: Any = None
) -> Subject:
    """The engine with these knobs, warmed up. Raises EngineFailed, and UnsupportedOption on a port that is taken."""
    with ExitStack() as stack:
        if isinstance(engine, Transformers):
            subject: Subject = _generating(engine, launch, knobs, max_new_tokens, tokenizer)
        else:
            subject = _served(engine, launch, knobs, max_new_tokens, port)
        stack.callback(subject.close)
        subject.answer([GREETING], 1)
        stack.pop_all()
    return subject


def _served(engine: ServingEngine, launch: Launch, knobs: Knobs, new: int, port: int) -> Subject:
    taken = port_for(port)
    command = [*engine.command(launch, knobs), *engine.place(taken)]
    server = Server(f"{engine.name} with {knobs.name}", command, engine.environment(launch), taken)
    with ExitStack() as stack:
        stack.callback(server.close)
        complaint = engine.complaint(server.log)
        if complaint is not None:
            raise EngineFailed(f"{server.name} came up without drafts; it said: {complaint}")
        found = Served(Address(server.url, engine.fields()), new, server)
        stack.pop_all()
    return found


def _generating(engine: Transformers, launch: Launch, knobs: Knobs, new: int, tokenizer: Any) -> Subject:
    file: Path = WORKERS / "hf_generate.py"
    threads = launch.threads or 1
    try:
        worker = Worker(f"transformers with {knobs.name}", launch.program, file, threads)
    except PeerFailed as error:
        raise EngineFailed(str(error)) from error
    with ExitStack() as stack:
        stack.callback(worker.close)
        asked = {
            "do": "open",
            "mode": "plain",
            "model": launch.model,
            "threads": threads,
            "dtype": launch.dtype or "auto",
            "context": launch.context,
            "eos": [],
            "settings": engine.settings(knobs),
        }
        try:
            worker.ask(asked, OPEN_SECONDS)
        except PeerFailed as error:
            raise EngineFailed(str(error)) from error
        stack.pop_all()
    return Generating(worker, tokenizer, new)
