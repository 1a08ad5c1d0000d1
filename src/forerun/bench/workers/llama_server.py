"""llama.cpp's own server, plain and with its own drafts: one slot, nothing kept of an earlier prompt.

Answers aren't streamed, so that no token waits for HTTP; the times are the server's own, whose clock for tokens begins after
the prompt. The program is settings["program"], else llama-server on the PATH.
"""

from __future__ import annotations

import json
import shlex
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

MODES = {
    "plain": "",
    "ngram-simple": (
        "--spec-type ngram-simple --spec-ngram-simple-size-n 3 --spec-ngram-simple-size-m 3 --spec-draft-n-max 3"
    ),
    "default": "--spec-default",
}
MODEL = "gguf"
OPEN_SECONDS = 300.0
# one token is taken, the likeliest; the other samplers would only cost time
GREEDY = {"temperature": 0.0, "top_k": 1, "samplers": ["top_k"]}


def free_port() -> int:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return int(opened.getsockname()[1])


def asked(url: str, request: dict[str, Any] | None = None, seconds: float = 600.0) -> dict[str, Any]:
    data = None if request is None else json.dumps(request).encode()
    headers = {"Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=seconds) as reply:
        found: dict[str, Any] = json.load(reply)
        return found


def wait_for(server: subprocess.Popen[bytes], url: str) -> None:
    """Until the model is loaded. Raises RuntimeError if the server ends or takes too long."""
    deadline = time.monotonic() + OPEN_SECONDS
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise RuntimeError(f"llama-server ended with exit code {server.returncode}")
        try:
            asked(f"{url}/health", seconds=5.0)
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)
        else:
            return
    raise RuntimeError(f"llama-server was not ready within {OPEN_SECONDS:.0f} s")


def peak_of(process: int) -> dict[str, float]:
    """The server's peak memory in MB, where Linux tells."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return {}
    return {"peak_mb": next(float(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 2**10}


def open_model(options: dict[str, Any]) -> tuple[dict[str, str], Any]:
    program = options["settings"].get("program", "llama-server")
    threads, port = str(options["threads"]), str(free_port())
    place = ["--host", "127.0.0.1", "--port", port, "--no-webui", "--parallel", "1", "--cache-ram", "0"]
    work = ["--model", options["model"], "--ctx-size", str(options["context"]), "--threads", threads]
    command = [program, *place, *work, "--threads-batch", threads, *shlex.split(MODES[options["mode"]])]
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    wait_for(server, url)

    def answer(ids: list[int], max_new_tokens: int, emit: Any) -> dict[str, float]:
        request = {"prompt": ids, "n_predict": max_new_tokens, "cache_prompt": False, "return_tokens": True, **GREEDY}
        told = asked(f"{url}/completion", request)
        emit(told["tokens"])
        times = told["timings"]
        return {
            "first_tokens": 1,
            "first_seconds": times["prompt_ms"] / 1000,
            "decode_seconds": times["predicted_ms"] / 1000,
            **peak_of(server.pid),
        }

    lines = (version.stderr + version.stdout).splitlines()
    told = [line for line in lines if line.startswith("version")] or lines or ["unknown"]
    return {"llama-server": told[0].removeprefix("version").strip(": ")}, answer
