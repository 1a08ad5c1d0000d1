"""Run a service until it is told to stop: by a signal it takes no more requests, and lets those there are end."""

from __future__ import annotations

import asyncio
import sys
from socket import socket
from types import FrameType
from typing import final

import uvicorn

from .app import create_app
from .service import Service

SWITCH_SECONDS = 0.0005  # how long the event loop may keep the engine's thread from its next forward


@final
class Server(uvicorn.Server):
    """Ends answers after `patience` seconds from the signal, so that connections end by themselves."""

    def __init__(self, config: uvicorn.Config, service: Service, patience: float) -> None:
        super().__init__(config)
        self._service = service
        self._patience = patience

    async def shutdown(self, sockets: list[socket] | None = None) -> None:
        closing = asyncio.create_task(self._service.close(self._patience))
        await super().shutdown(sockets)
        await closing

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if not self.should_exit:
            super().handle_exit(sig, frame)
        else:  # a second signal doesn't wait
            self._service.engines.hurry()


def run(service: Service, host: str, port: int, patience: float) -> None:
    """Serve on this address. Raises OSError where it can't be taken."""
    sys.setswitchinterval(SWITCH_SECONDS)
    config = uvicorn.Config(
        create_app(service), host=host, port=port, log_config=None, access_log=False, server_header=False, lifespan="on"
    )
    Server(config, service, patience).run()
