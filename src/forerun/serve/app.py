"""The app: its routes, what wraps them, and the form of its errors."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import JSONResponse, Response

from .answers.response import refused
from .guard import Guard
from .refusal import INVALID, Refusal
from .routes import about, completions, page, tokens
from .service import Service


def create_app(service: Service) -> FastAPI:
    """The app of a service, which starts and ends with it."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.start()
        yield
        await service.close()

    # the documentation pages load scripts from another host
    app = FastAPI(
        title="forerun",
        version=service.settings.version,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )
    for part in (completions, about, tokens):
        app.include_router(part.router(service))
    pages = page.page_files()
    app.include_router(page.router(pages))
    app.add_exception_handler(Refusal, _refused)
    app.add_exception_handler(HTTPException, _http)
    app.add_middleware(Guard, settings=service.settings, free=frozenset(pages))
    if service.settings.cors:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=service.settings.cors,
            allow_methods=["GET", "POST"],
            allow_headers=["authorization", "content-type"],
        )
    return app


async def _refused(request: Request, error: Any) -> Response:
    return refused(error)


async def _http(request: Request, error: Any) -> Response:
    said = HTTPStatus(error.status_code).phrase.lower()
    body = {"error": {"message": f"{said}: no such path or method here", "type": INVALID, "param": None, "code": None}}
    return JSONResponse(body, error.status_code, error.headers)
