"""A small server with OpenAI's API, whose model says a prompt's last words backwards."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from time import sleep
from typing import Any

LONG = "too long"  # a prompt with these words is refused


@dataclass
class Server:
    """What it shall do, and what it was asked. down_after: answers after which it is gone; busy: times it answers 503."""

    names: tuple[str, ...] = ("told",)
    tells_ids: bool = False
    refuses_unknown: bool = False
    down_after: int | None = None
    busy: int = 0
    seconds: float = 0.0
    end: str = "stop"
    body: bytes | None = None
    asked: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    answered: int = 0
    most_at_once: int = 0
    at_once: int = 0
    lock: Any = field(default_factory=Lock)
    url: str = ""

    def reply(self, route: str, asked: dict[str, Any]) -> tuple[int, Any]:
        chat = route == "/v1/chat/completions"
        prompt = asked["messages"][-1]["content"] if chat else asked["prompt"]
        if self.busy:
            self.busy -= 1
            return 503, {"error": {"message": "later"}}
        if LONG in prompt:
            return 400, {"error": {"message": "this prompt\nis too long"}}
        if self.refuses_unknown and "return_token_ids" in asked:
            return 400, {"error": {"message": "unknown field return_token_ids"}}
        text = prompt[::-1][: asked["max_tokens"]]
        choice = {"finish_reason": self.end, **({"message": {"content": text}} if chat else {"text": text})}
        if self.tells_ids and asked.get("return_token_ids"):
            choice["token_ids"] = [5, 6, 7]
        self.answered += 1
        return 200, {"choices": [choice]}


@contextmanager
def serving(server: Server) -> Iterator[Server]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send(200, {"data": [{"id": name} for name in server.names]})

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with server.lock:
                gone = server.down_after is not None and server.answered >= server.down_after
                server.asked.append(asked)
                server.keys.append(self.headers["Authorization"])
                server.at_once += 1
                server.most_at_once = max(server.most_at_once, server.at_once)
                status, told = (0, None) if gone else server.reply(self.path, asked)
            sleep(server.seconds)
            with server.lock:
                server.at_once -= 1
            if status:
                self.send(status, told)
            else:
                self.close_connection = True  # without a word, as a process that was killed

        def send(self, status: int, told: Any) -> None:
            body = json.dumps(told).encode() if server.body is None else server.body
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            pass

    class Listening(ThreadingHTTPServer):
        request_queue_size = 64
        daemon_threads = True

    with Listening(("127.0.0.1", 0), Handler) as listening:
        server.url = f"http://127.0.0.1:{listening.server_address[1]}"
        thread = Thread(target=listening.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            listening.shutdown()
            thread.join()
