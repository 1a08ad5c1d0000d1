"""What the endpoints ask: requests are prepared, put into the running batch and taken out of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import time
from typing import Any, TypeVar, final

from ..engine.engine import Engine
from ..engine.in_flight import Job
from .answers.answering import Answering
from .answers.logprobs import TokenTexts
from .metrics import Metrics
from .refusal import Refusal, invalid, of_value, shutting_down
from .requests.fields import GenerationFields
from .requests.options import options_of, seeds
from .settings import Settings
from .worker.thread import EngineThread, Told

LOG = logging.getLogger("forerun.serve")
T = TypeVar("T")
# rows of prompts in a forward: on a CPU a few fill the cores, and more only make the others wait
READ_ON_CPU, READ = 32, 512
# finds a request's prompts, as token ids
Prompts = Callable[[], Sequence[Sequence[int]]]


@final
class Service:
    """methods: engines on one model, the first of which answers requests that name none."""

    def __init__(self, methods: Mapping[str, Engine], settings: Settings) -> None:
        self.settings = settings
        self.methods = methods
        self.default = next(iter(methods))
        self.engine = methods[self.default]
        self.tokenizer: Any = self.engine.tokenizer
        self.texts = TokenTexts(self.tokenizer)
        self.begun = int(time())
        rows = settings.prefill_rows or (READ_ON_CPU if self.engine.runner.device.type == "cpu" else READ)
        for runner in dict.fromkeys(runner for engine in methods.values() for runner in engine.runners):
            runner.chunk = rows
        most = settings.most_running, settings.most_waiting, rows
        self.engines = EngineThread(*most, self._tell, self.engine.follow, settings.log_prompts)
        self.metrics = Metrics(settings.name, lambda: self.engines.running, lambda: self.engines.waiting)
        self._preparing = ThreadPoolExecutor(2, thread_name_prefix="forerun-prepare")
        self._closing = False
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """On the event loop that requests come by."""
        self._loop = asyncio.get_running_loop()
        self.engines.start()

    async def close(self, seconds: float = 0.0) -> None:
        """Let the answers end within so many seconds, then end them."""
        self._closing = True
        await asyncio.to_thread(self.engines.close, seconds)
        self._preparing.shutdown(wait=False, cancel_futures=True)

    def check_model(self, name: str | None) -> None:
        if name is not None and name != self.settings.name:
            raise Refusal(
                404,
                f"there is no such model; this server has {self.settings.name!r}",
                param="model",
                code="model_not_found",
            )

    async def aside(self, work: Callable[[], T]) -> T:
        """Run what takes time away from the event loop. Raises Refusal for what the engine refuses."""
        if self._closing:
            raise shutting_down()
        return await asyncio.get_running_loop().run_in_executor(self._preparing, work)

    async def ask(
        self, fields: GenerationFields, prompts: Prompts, prompt_count: int, prefix: str, shown: Sequence[str] = ()
    ) -> Answering:
        """A request on its way; shown: special tokens that its texts are to hold.

        Raises Refusal before anything has run if it can't be answered.
        """
        if self.settings.log_prompts:
            LOG.info("asked: %s", fields.model_dump_json(exclude_none=True, by_alias=True))
        self.check_model(fields.model)
        count, most = (fields.n or 1) * prompt_count, self.settings.most_choices
        if count > most:
            raise invalid(f"a request may have at most {most} answers on this server, got {count}", "n")
        engine = self._method(fields.method)
        jobs, prompt_tokens = await self.aside(partial(self._prepared, fields, prompts, engine, shown))
        answering = Answering(jobs, prompt_tokens, self.settings.name, prefix)
        self.engines.submit(answering.tickets)
        return answering

    def leave(self, answering: Answering) -> None:
        """The client has gone, or has all it asked for."""
        self.metrics.left(answering.tickets)
        self.engines.cancel(answering.tickets)

    def _method(self, name: str | None) -> Engine:
        if name is None:
            return self.engine
        if name not in self.methods:
            raise invalid(f"this server has no such method; it has {', '.join(self.methods)}", "method")
        return self.methods[name]

    def _prepared(
        self, fields: GenerationFields, prompts: Prompts, engine: Engine, shown: Sequence[str]
    ) -> tuple[list[Job], int]:
        jobs: list[Job] = []
        prompt_tokens = 0
        try:
            for ids in prompts():
                prompt_tokens += len(ids)
                options = options_of(fields, engine, len(ids), self.settings)
                for seed in seeds(fields.seed, fields.n or 1):
                    jobs.append(engine.prepare(ids, {**options, "seed": seed}, shown))
        except ValueError as error:
            raise of_value(error, type(fields).model_fields) from error
        return jobs, prompt_tokens

    def _tell(self, told: Told) -> None:
        """Called on the engine's thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._deliver, told)

    def _deliver(self, told: Told) -> None:
        for ticket, update in told:
            if not ticket.cancelled:
                self.metrics.updated(ticket, update)
                ticket.deliver(update)
