"""Servers to load: those of this script, started and ended by it, and running ones by their addresses."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter, sleep

import httpx

END_SECONDS, LOOK_AGAIN = 20, 0.5


class NotReady(RuntimeError):
    """A server that ended, or didn't answer in time."""


@dataclass(frozen=True)
class Server:
    """How a server is started, or where one runs already: then there is no command."""

    name: str
    address: str = ""
    command: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)


def forerun(model: str, weights: str, threads: int, slots: int) -> Server:
    form = ("--weights", weights) if weights else ()
    # an answer that comes again, in the next repeat, is not to be copied
    own = ("--threads", str(threads), "--max-running", str(slots), "--no-remember")
    return Server("forerun", command=(sys.executable, "-m", "forerun", "serve", model, *form, *own))


def llama_server(program: str, gguf: str, threads: int, slots: int, context: int) -> Server:
    size = ("-t", str(threads), "--parallel", str(slots), "-c", str(slots * context))
    return Server("llama-server", command=(program, "-m", gguf, *size, "--no-webui"))


def vllm(python: str, directory: str, threads: int, slots: int, context: int) -> Server:
    size = ("--dtype", "bfloat16", "--max-model-len", str(context), "--max-num-seqs", str(slots))
    openmp = Path(python).parents[1] / "lib" / "libiomp5.so"
    environment = {
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "OMP_NUM_THREADS": str(threads),
        "HF_HUB_OFFLINE": "1",
        **({"LD_PRELOAD": str(openmp)} if openmp.exists() else {}),
    }
    command = (python, "-m", "vllm.entrypoints.openai.api_server", "--model", directory, *size)
    return Server("vllm", command=command, environment=environment)


@contextmanager
def opened(server: Server, seconds: float) -> Iterator[str]:
    """Its address, once it answers; what was started here is ended, with the processes that it started.

    Raises NotReady if it ends or hasn't answered within so many seconds.
    """
    if server.address:
        yield server.address
        return
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [*server.command, "--host", "127.0.0.1", "--port", str(port)],
            env={**os.environ, **server.environment},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            _wait(server, process, f"http://127.0.0.1:{port}", seconds)
            yield f"http://127.0.0.1:{port}"
        except NotReady:
            log.seek(0)
            sys.stderr.write(log.read()[-3000:].decode(errors="replace"))
            raise
        finally:
            _end(process)


def _wait(server: Server, process: subprocess.Popen[bytes], address: str, seconds: float) -> None:
    deadline = perf_counter() + seconds
    with httpx.Client(timeout=5) as client:
        while perf_counter() < deadline:
            if process.poll() is not None:
                raise NotReady(f"{server.name} ended with exit code {process.returncode}")
            try:
                if client.get(f"{address}/health").status_code == 200:
                    return
            except httpx.TransportError:
                pass
            sleep(LOOK_AGAIN)
    raise NotReady(f"{server.name} was not ready within {seconds:.0f} s")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    try:  # what it started itself has its session
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
