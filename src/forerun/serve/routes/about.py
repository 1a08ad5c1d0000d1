"""GET /v1/models, /health, /version and /metrics."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response

from ..refusal import Refusal
from ..service import Service


def router(service: Service) -> APIRouter:
    made = APIRouter()

    @made.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [described(service)]}

    @made.get("/v1/models/{name:path}")
    async def model(name: str) -> dict[str, Any]:
        service.check_model(name)
        return described(service)

    @made.get("/health")
    async def health() -> dict[str, Any]:
        if not service.engines.alive:
            raise Refusal(503, "the engine has stopped", code="engine_stopped")
        return {"status": "ok", "running": service.engines.running, "waiting": service.engines.waiting}

    @made.get("/version")
    async def version() -> dict[str, Any]:
        return {"version": service.settings.version}

    @made.get("/metrics")
    async def metrics() -> Response:
        return Response(service.metrics.text(), media_type=CONTENT_TYPE_LATEST)

    return made


def described(service: Service) -> dict[str, Any]:
    """The model as OpenAI lists one; under "forerun" what a page needs."""
    runner = service.engine.runner
    return {
        "id": service.settings.name,
        "object": "model",
        "created": service.begun,
        "owned_by": "forerun",
        "max_model_len": runner.max_length,
        "forerun": {"methods": list(service.methods), "method": service.default, "kernels": runner.kernels},
    }
