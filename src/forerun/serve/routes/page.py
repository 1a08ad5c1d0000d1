"""The web page at /: files of the package, which call no other host."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from importlib.resources import files

from fastapi import APIRouter
from starlette.responses import Response

TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
INDEX = "index.html"
HEADERS = {
    # scripts, styles and pictures of this server alone, none within the page; it calls this server alone
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


def page_files() -> dict[str, bytes]:
    """The page's files by their paths on the server."""
    found = {one.name: one.read_bytes() for one in files("forerun.serve").joinpath("page").iterdir()}
    return {"/" if name == INDEX else f"/page/{name}": content for name, content in found.items()}


def router(pages: Mapping[str, bytes]) -> APIRouter:
    """A route for each file, so that no path of a request reaches the file system."""
    made = APIRouter()
    for path, content in pages.items():
        kind = TYPES["html" if path == "/" else path.rpartition(".")[2]]
        made.add_api_route(path, _sender(content, kind), methods=["GET"])
    return made


def _sender(content: bytes, kind: str) -> Callable[[], Awaitable[Response]]:
    async def send() -> Response:
        return Response(content, media_type=kind, headers=HEADERS)

    return send
