"""The page's files come from the package, under their own paths, and call no other host."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
import pytest

import forerun
from forerun.serve.routes.page import HEADERS, INDEX, page_files

from ..running import service, within

FOLDER = Path(forerun.__file__).parent / "serve" / "page"
PATHS = sorted(page_files())


def fetched(*paths: str, **settings: Any) -> list[httpx.Response]:
    async def work(caller: httpx.AsyncClient) -> list[httpx.Response]:
        return [await caller.get(path) for path in paths]

    found: list[httpx.Response] = within(service(**settings), work)
    return found


def test_every_file_is_served_with_its_type_and_a_strict_policy() -> None:
    for path, response in zip(PATHS, fetched(*PATHS), strict=True):
        name = INDEX if path == "/" else path.removeprefix("/page/")
        assert response.status_code == 200
        assert response.content == (FOLDER / name).read_bytes()
        kind = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
        assert response.headers["content-type"].startswith(kind[name.rpartition(".")[2]])
        assert {name: response.headers[name] for name in HEADERS} == HEADERS
    assert "/" in PATHS
    assert len(PATHS) == len(list(FOLDER.iterdir()))


def test_the_policy_allows_nothing_but_this_server() -> None:
    policy = HEADERS["Content-Security-Policy"]

    assert policy.startswith("default-src 'none';")
    assert set(re.findall(r"-src (\S+?);", policy)) <= {"'none'", "'self'"}
    assert "unsafe" not in policy


@pytest.mark.parametrize(
    "path", ["/page/", "/page/other.js", "/page/../settings.py", "/page/%2e%2e/app.py", "/index.html"]
)
def test_no_other_path_leads_to_a_file(path: str) -> None:
    assert fetched(path)[0].status_code == 404


def test_the_page_needs_no_key_and_what_it_asks_for_does() -> None:
    statuses = [response.status_code for response in fetched("/", "/page/main.js", "/v1/models", api_key="secret")]

    assert statuses == [200, 200, 401]


@pytest.mark.parametrize("path", PATHS)
def test_no_file_names_another_host_or_makes_markup_of_text(path: str) -> None:
    text = page_files()[path].decode()
    hosts = set(re.findall(r"(?:https?:)?//[\w.]+\.\w+", text)) - {
        "http://www.w3.org"
    }  # SVG's name, which nobody calls

    assert hosts == set()
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "style="):
        assert way not in text


def test_what_the_page_links_is_there() -> None:
    index = page_files()["/"].decode()
    linked = set(re.findall(r'(?:src|href)="([^"]+)"', index))
    imported = {
        f"/page/{name}" for path in PATHS for name in re.findall(r'from "\./([^"]+)"', page_files()[path].decode())
    }

    assert linked | imported == {*PATHS} - {"/"}


def test_every_field_of_the_page_has_a_label() -> None:
    index = page_files()["/"].decode()
    fields = re.findall(r'<(?:input|select|textarea) id="([\w-]+)"', index)
    inside = re.findall(r'<label[^>]*>(?:(?!</label>).)*id="([\w-]+)"', index)

    assert fields
    assert set(fields) <= {*inside, *re.findall(r'<label[^>]* for="([\w-]+)"', index)}
