"""Prompts to a server with OpenAI's API: some at once, timed from the first to the last answer's end."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from time import perf_counter
from typing import Any, final
from urllib.parse import urlsplit

from ...errors import ForerunError, reason_of
from ..machine import Sample

Prompt = str | Sequence[Mapping[str, str]]
ANSWER_SECONDS = 600.0
DRAFTED, ACCEPTED = COUNTED = ("spec_decode_num_draft_tokens", "spec_decode_num_accepted_tokens")


class EngineFailed(ForerunError):
    """Another engine that can't be started, is gone, or answers with an error."""


class Unreachable(EngineFailed):
    """Nobody answers at an address, or no longer."""


@final
@dataclass(frozen=True, slots=True)
class Answered:
    """What a group of prompts came to; texts are digests, to compare with others' answers to the same prompts."""

    sample: Sample
    texts: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        return {"sample": asdict(self.sample), "texts": list(self.texts)}


def answered(texts: Sequence[str], tokens: int, seconds: float, drafted: int, accepted: int) -> Answered:
    digests = tuple(hashlib.sha256(text.encode()).hexdigest()[:12] for text in texts)
    return Answered(Sample(tokens, seconds, 0, drafted, accepted, 0.0, 0.0), digests)


def alive(url: str) -> bool:
    """Whether the server says that it is ready."""
    try:
        status, _ = _sent(url, "GET", "/health", None, 5.0, "")
    except (OSError, HTTPException):
        return False
    return status == 200


@final
class Address:
    """url: with or without /v1. fields: what every request says. Raises EngineFailed where nobody serves a model there."""

    def __init__(self, url: str, fields: Mapping[str, Any], key: str = "") -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"an endpoint is an address like http://localhost:8000, got {url!r}")
        self.url = url.rstrip("/").removesuffix("/v1")
        self._fields, self._key = dict(fields), key
        told = self._asked("GET", "/v1/models", None)
        try:
            self.model = str(told["data"][0]["id"])
        except (KeyError, IndexError, TypeError) as error:
            raise EngineFailed(f"{self.url} serves no model: it told {json.dumps(told)[:80]}") from error

    def answer(self, prompts: Sequence[Prompt], at_once: int, max_new_tokens: int) -> Answered:
        """Greedy answers up to their own ends, each asked for when an earlier one is there. Raises EngineFailed."""
        before = self._counts()
        common = {"model": self.model, "max_tokens": max_new_tokens, "temperature": 0.0, **self._fields}
        begun = perf_counter()
        with ThreadPoolExecutor(at_once) as pool:
            told = list(pool.map(lambda prompt: self._one(prompt, common), prompts))
        seconds = perf_counter() - begun
        after = self._counts()
        counts = {name: after[name] - before.get(name, 0) for name in after}
        timed = [one["timings"] for one in told if isinstance(one.get("timings"), dict)]
        drafted = counts.get(DRAFTED, sum(int(one.get("draft_n", 0)) for one in timed))
        accepted = counts.get(ACCEPTED, sum(int(one.get("draft_n_accepted", 0)) for one in timed))
        return answered([_text(one) for one in told], sum(map(_tokens, told)), seconds, drafted, accepted)

    def _one(self, prompt: Prompt, common: Mapping[str, Any]) -> dict[str, Any]:
        if isinstance(prompt, str):
            told = self._asked("POST", "/v1/completions", {**common, "prompt": prompt})
        else:
            told = self._asked("POST", "/v1/chat/completions", {**common, "messages": prompt})
        try:
            _text(told), _tokens(told)
        except (KeyError, IndexError, TypeError) as error:
            raise EngineFailed(f"{self.url} gave no completion but {json.dumps(told)[:80]}") from error
        return told

    def _asked(self, method: str, path: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        try:
            status, content = _sent(self.url, method, path, body, ANSWER_SECONDS, self._key)
        except (OSError, HTTPException) as error:
            raise Unreachable(f"{self.url} can't be reached: {reason_of(error)}") from error
        try:
            told = json.loads(content)
        except ValueError:
            told = None
        if status != 200 or not isinstance(told, dict):
            said = " ".join(content.decode(errors="replace").split())[:200]
            raise EngineFailed(f"{self.url} answered {method} {path} with {status}: {said}")
        return told

    def _counts(self) -> dict[str, int]:
        """Tokens drafted and accepted since the server began, empty where it doesn't tell."""
        try:
            status, content = _sent(self.url, "GET", "/metrics", None, ANSWER_SECONDS, self._key)
        except (OSError, HTTPException) as error:
            raise Unreachable(f"{self.url} can't be reached: {reason_of(error)}") from error
        text = content.decode(errors="replace") if status == 200 else ""
        found: dict[str, int] = {}
        for name in COUNTED:
            values = re.findall(rf"^\w+:{name}_total(?:{{.*}})? (\S+)$", text, re.MULTILINE)
            if values:
                found[name] = round(sum(map(float, values)))
        return found


def _sent(
    url: str, method: str, path: str, body: Mapping[str, Any] | None, seconds: float, key: str
) -> tuple[int, bytes]:
    parts = urlsplit(url)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.netloc.rpartition("@")[2], timeout=seconds)
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
    try:
        connection.request(method, parts.path + path, None if body is None else json.dumps(body).encode(), headers)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def _text(told: Mapping[str, Any]) -> str:
    choice = told["choices"][0]
    return str((choice["message"]["content"] if "message" in choice else choice["text"]) or "")


def _tokens(told: Mapping[str, Any]) -> int:
    return int(told["usage"]["completion_tokens"])
