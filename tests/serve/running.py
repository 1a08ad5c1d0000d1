"""A tiny model behind a server of this process, and clients of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import httpx
import uvicorn

from forerun import Engine, load
from forerun.serve.app import create_app
from forerun.serve.service import Service
from forerun.serve.settings import Settings
from forerun.testing import tiny_model, tiny_tokenizer

NAME = "tiny"
TOKENIZER = tiny_tokenizer()


@cache
def engine(drafter: str = "lookup", policy: str = "fixed") -> Engine:
    model = tiny_model("llama", vocab_size=len(TOKENIZER), eos_token_id=256, max_position_embeddings=512)
    return load(model, TOKENIZER, drafter, policy)


def service(methods: Mapping[str, Engine] | None = None, **settings: Any) -> Service:
    return Service(methods or {"lookup": engine()}, Settings(name=NAME, **settings))


@contextmanager
def served(one: Service) -> Iterator[str]:
    """Its address, on a free port of this machine."""
    config = uvicorn.Config(create_app(one), host="127.0.0.1", port=0, log_config=None, access_log=False, lifespan="on")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            threading.Event().wait(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()


def client(one: Service) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(create_app(one)), base_url="http://localhost")


def within(one: Service, work: Any) -> Any:
    """Run work(client) on an event loop of its own, beside the service."""

    async def run() -> Any:
        one.start()
        try:
            async with client(one) as caller:
                return await work(caller)
        finally:
            await one.close()

    return asyncio.run(run())
