"""llama.cpp's own server, plain and with its own drafts: a slot for each prompt at once, nothing kept of an earlier one.

Answers aren't streamed, so that no token waits for HTTP; the times are the server's own, whose clock for tokens begins after
the prompt. The program is settings["program"], else llama-server on the PATH; settings["arguments"] come after all others.
"""

from __future__ import annotations

import json
import shlex
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

MODES = {
    "plain": "",
    "ngram-simple": (
        "--spec-type ngram-simple --spec-ngram-simple-size-n 3 --spec-ngram-simple-size-m 3 --spec-draft-n-max 3"
    ),
    "default": "--spec-default",
    "draft-model": "--spec-type draft-simple --spec-draft-n-max 3",
    "list": (
        "--spec-type ngram-simple,draft-simple --spec-ngram-simple-size-n 3 --spec-ngram-simple-size-m 3 "
        "--spec-draft-n-max 3"
    ),
}
MODEL = "gguf"
DRAFTS = ("draft-model", "list")
# what it says while it comes up all the same, and then decodes plainly
COMPLAINTS = ("failed to initialize speculative", "vocabs are not compatible", "speculative decoding not supported")
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


def said(log: IO[bytes]) -> str:
    log.seek(0)
    return log.read().decode(errors="replace").strip()


def complaint_in(log: str) -> str | None:
    """Why a server that came up drafts nothing, by its log; None where it does as it was told."""
    return next((line.strip() for line in log.splitlines() if any(one in line for one in COMPLAINTS)), None)


def command_of(program: str, options: dict[str, Any], port: int) -> list[str]:
    threads, at_once = str(options["threads"]), options.get("at_once", 1)
    place = ["--host", "127.0.0.1", "--port", str(port), "--no-webui", "--parallel", str(at_once), "--cache-ram", "0"]
    work = ["--model", options["model"], "--ctx-size", str(options["context"] * at_once), "--threads", threads]
    drafts = shlex.split(MODES[options["mode"]])
    if options["mode"] in DRAFTS:
        drafts += ["--spec-draft-model", options["draft"]]
    more = shlex.split(options["settings"].get("arguments", ""))
    return [program, *place, *work, "--threads-batch", threads, *drafts, *more]


def open_model(options: dict[str, Any]) -> tuple[dict[str, str], Any, Any]:
    program, port = options["settings"].get("program", "llama-server"), free_port()
    try:
        version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    except FileNotFoundError:
        raise RuntimeError(
            f"no program {program!r} here; make peers builds it, --peer-setting llama-server.program=PATH says where it is"
        ) from None
    log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
    command = command_of(program, options, port)
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    url = f"http://127.0.0.1:{port}"
    try:
        wait_for(server, url)
    except RuntimeError as error:
        raise RuntimeError(f"{error}; it said: {(said(log).splitlines() or ['nothing'])[-1]}") from error
    complaint = complaint_in(said(log))
    if complaint is not None:
        raise RuntimeError(f"llama-server came up without drafts; it said: {complaint}")

    def completed(ids: list[int], max_new_tokens: int) -> dict[str, Any]:
        request = {"prompt": ids, "n_predict": max_new_tokens, "cache_prompt": False, "return_tokens": True, **GREEDY}
        return asked(f"{url}/completion", request)

    def answer_all(prompts: list[list[int]], at_once: int, max_new_tokens: int) -> list[list[int]]:
        with ThreadPoolExecutor(at_once) as pool:
            return [told["tokens"] for told in pool.map(lambda ids: completed(ids, max_new_tokens), prompts)]

    def answer(ids: list[int], max_new_tokens: int, emit: Any) -> dict[str, float]:
        told = completed(ids, max_new_tokens)
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
    return {"llama-server": told[0].removeprefix("version").strip(": ")}, answer, answer_all
