"""The worker of llama-server, on a stand-in that speaks as the server does."""

import json
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from forerun.bench.backend import PeerFailed
from forerun.bench.worker import WORKERS, Worker
from forerun.bench.workers import llama_server

FILE = WORKERS / "llama_server.py"
SERVER = """#!{python}
import json, os, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

if "--version" in sys.argv:
    print("version: 1 (abc)", file=sys.stderr)
    sys.exit()
if "broken.gguf" in sys.argv:
    sys.exit("no such model")
if "other.gguf" in sys.argv:
    print("srv: the target and draft vocabs are not compatible", file=sys.stderr, flush=True)


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.reply({{}})

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with open({log!r}, "w") as file:
            json.dump({{"arguments": sys.argv[1:], "asked": asked, "process": os.getpid()}}, file)
        self.reply({{"tokens": asked["prompt"][:1] + [2, 3, 4], "timings": {{"prompt_ms": 500.0, "predicted_ms": 30.0}}}})

    def reply(self, told):
        body = json.dumps(told).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *given):
        pass


port = int(sys.argv[sys.argv.index("--port") + 1])
ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("server")
    (folder / "llama-server").write_text(SERVER.format(python=sys.executable, log=str(folder / "log.json")))
    (folder / "llama-server").chmod(0o755)
    return folder


def opening(
    place: Path, model: str = "m.gguf", program: str = "llama-server", mode: str = "ngram-simple", **more: Any
) -> dict[str, Any]:
    common = {"threads": 2, "context": 64, "eos": [9], "dtype": "bfloat16"}
    return {
        "do": "open",
        "mode": mode,
        "model": model,
        "settings": {"program": str(place / program), "arguments": "--spec-draft-p-min 0.5"},
        **common,
        **more,
    }


@pytest.fixture(scope="module")
def seen(place: Path) -> dict[str, Any]:
    """What a server with drafts was started with and asked, and what became of its reply."""
    with closing(Worker("llama-server", sys.executable, FILE, 2)) as worker:
        opened = worker.ask(opening(place), 60)
        answer = worker.ask({"do": "answer", "ids": [1, 8], "max_new_tokens": 3}, 60)
    return {**opened, "answer": answer, **json.loads((place / "log.json").read_text())}


def test_the_server_runs_under_the_common_conditions_with_its_drafts(seen: dict[str, Any]) -> None:
    told = " ".join(seen["arguments"])
    for wanted in (
        "--ctx-size 64 --threads 2 --threads-batch 2",
        "--parallel 1",
        "--spec-type ngram-simple --spec-ngram-simple-size-n 3 --spec-ngram-simple-size-m 3 --spec-draft-n-max 3",
    ):
        assert wanted in told
    assert told.endswith("--spec-draft-p-min 0.5")
    assert seen["asked"]["prompt"] == [1, 8]
    assert (seen["asked"]["n_predict"], seen["asked"]["cache_prompt"]) == (3, False)
    assert seen["asked"]["top_k"] == 1


def test_the_servers_own_times_and_tokens_are_reported(seen: dict[str, Any]) -> None:
    assert seen["versions"] == {"llama-server": "1 (abc)"}
    answer = seen["answer"]
    assert answer.pop("peak_mb") > 1
    assert answer == {"ids": [1, 2, 3], "first_tokens": 1, "first_seconds": 0.5, "decode_seconds": 0.03}


def test_the_server_ends_with_its_worker(seen: dict[str, Any]) -> None:
    deadline = time.monotonic() + 10
    while Path(f"/proc/{seen['process']}/cmdline").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not Path(f"/proc/{seen['process']}/cmdline").exists()


@pytest.mark.parametrize(
    ("model", "program", "said"),
    [
        ("broken.gguf", "llama-server", "llama-server ended with exit code 1; it said: no such model"),
        ("m.gguf", "missing", "missing' here; make peers builds it, --peer-setting llama-server.program=PATH"),
        ("other.gguf", "llama-server", "came up without drafts; it said: srv: the target and draft vocabs"),
    ],
)
def test_a_server_that_can_not_run_is_a_failure_at_once(place: Path, model: str, program: str, said: str) -> None:
    with closing(Worker("llama-server", sys.executable, FILE, 2)) as worker, pytest.raises(PeerFailed, match=said):
        worker.ask(opening(place, model, program), 60)


def test_prompts_at_once_have_a_slot_each_and_their_own_answers_and_drafts(place: Path) -> None:
    asked = opening(place, mode="list", at_once=3, draft="/d.gguf")
    with closing(Worker("llama-server", sys.executable, FILE, 2)) as worker:
        assert worker.ask(asked, 60)["several"]
        prompts = [[number, 8] for number in range(11, 16)]
        told = worker.ask({"do": "answer_all", "prompts": prompts, "at_once": 3, "max_new_tokens": 2}, 60)
    assert told["ids"] == [[number, 2] for number in range(11, 16)]
    arguments = " ".join(json.loads((place / "log.json").read_text())["arguments"])
    assert "--parallel 3" in arguments
    assert "--ctx-size 192" in arguments
    assert "--spec-type ngram-simple,draft-simple" in arguments
    assert "--spec-draft-model /d.gguf" in arguments


def test_without_a_process_to_look_at_the_peak_is_not_told() -> None:
    assert llama_server.peak_of(2**30) == {}
