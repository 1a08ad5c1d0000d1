"""Load on servers: tokens a second, time to the first token and gaps, by the number of clients at once.

    python benchmarks/serve/load.py SUITE OUT.json --start forerun --start llama-server --start vllm \\
        --llama-server PATH --llama-model Q4_0.gguf --vllm-python PATH --stall 1500

Each server that is named by --start is started here, loaded and ended before the next one; --server NAME=ADDRESS loads a
running one. forerun's is asked plainly and with drafts, by turns on the same prompts; any other as it was started. All
answers have the same number of tokens, at temperature 0. Each client asks its next question when it has its answer.
--stall N also sends a prompt of about N tokens while others run, and tells their longest gaps. After --minutes no further
run begins; what was left out, or didn't open by then, is named. Ratios hold within one run only, and servers are minutes
apart.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import httpx
from clients import Subject, loaded, stalled
from servers import NotReady, Server, forerun, llama_server, opened, vllm

from forerun.bench.peer_models import peer_models
from forerun.bench.suite import read_suite
from forerun.engine.measurement_conditions import hardware

FORERUN_MODES: dict[str, dict[str, Any]] = {"plain": {"speculate": False}, "speculative": {}}
AS_STARTED = "as started"
STARTED = ("forerun", "llama-server", "vllm")


def servers_of(given: argparse.Namespace) -> list[Server]:
    """Those to start, in the order in which they were named, then the running ones."""
    slots = max(sizes_of(given))
    found: list[Server] = []
    for name in given.start:
        if name == "forerun":
            found.append(forerun(given.model, given.weights, given.threads, slots))
            continue
        files = peer_models(given.model, "bfloat16")
        size = given.threads, slots, given.context
        if name == "llama-server":
            found.append(llama_server(given.llama_server, given.llama_model or files["gguf"], *size))
        else:
            found.append(vllm(given.vllm_python, files["hf"], *size))
    for text in given.server:
        name, _, address = text.partition("=")
        if not address:
            raise SystemExit(f"--server takes NAME=ADDRESS, got {text}")
        found.append(Server(name, address))
    if not found:
        raise SystemExit("name servers to load with --start or --server")
    return found


def sizes_of(given: argparse.Namespace) -> list[int]:
    return [int(size) for size in given.clients.split(",")]


def subjects_of(given: argparse.Namespace, server: Server, address: str) -> list[Subject]:
    headers = {"Authorization": f"Bearer {given.api_key}"} if given.api_key else {}
    model = httpx.get(f"{address}/v1/models", headers=headers, timeout=30).json()["data"][0]
    modes = FORERUN_MODES if "forerun" in model else {AS_STARTED: {}}
    return [
        Subject(f"{server.name} {mode}", address, model["id"], fields, given.new, given.api_key)
        for mode, fields in modes.items()
    ]


def ratios(runs: Sequence[dict[str, Any]], sizes: Sequence[int]) -> list[dict[str, Any]]:
    """With drafts over plain, for each number of clients: each repeat's two runs are compared with each other."""
    found: list[dict[str, Any]] = []
    servers = dict.fromkeys(run["server"].rpartition(" ")[0] for run in runs if run["server"].endswith(" speculative"))
    for server, clients in product(servers, sizes):
        own = {(run["server"], run["repeat"]): run for run in runs if run["clients"] == clients}
        plain, drafted = (f"{server} {mode}" for mode in FORERUN_MODES)
        repeats = [repeat for name, repeat in own if name == drafted and (plain, repeat) in own]
        if not repeats:
            continue
        pairs = [(own[plain, repeat], own[drafted, repeat]) for repeat in repeats]
        each = [two["tokens_per_second"] / one["tokens_per_second"] for one, two in pairs]
        equal = sum(a == b for one, two in pairs for a, b in zip(one["texts"], two["texts"], strict=True))
        found.append(
            {
                "server": server,
                "clients": clients,
                "speculative_over_plain": median(each),
                "each": each,
                "equal_texts": equal / sum(len(one["texts"]) for one, _ in pairs),
            }
        )
    return found


@dataclass
class Measured:
    """What was found so far. left_out: what the limit of time left no room for, or what didn't open."""

    deadline: float
    servers: dict[str, Any] = field(default_factory=dict)
    longest_gaps: dict[str, Any] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    runs: list[dict[str, Any]] = field(default_factory=list)

    @property
    def seconds_left(self) -> float:
        return self.deadline - perf_counter()


async def measured(given: argparse.Namespace) -> dict[str, Any]:
    questions = [item.question.turns[0] for item in read_suite(given.suite)]
    questions = [question for question in questions if len(question) <= given.longest]
    questions = questions[:: max(len(questions) // given.requests, 1)][: given.requests]  # of every category
    found = Measured(perf_counter() + 60 * given.minutes)
    for server in servers_of(given):
        begun = perf_counter()
        try:
            with opened(server, found.seconds_left) as address:
                found.servers[server.name] = {
                    "command": " ".join(server.command),
                    "environment": server.environment,
                    "seconds_to_open": perf_counter() - begun,
                }
                await measure(given, subjects_of(given, server, address), questions, found)
        except NotReady as error:
            found.left_out.append(str(error))
    return {
        "servers": found.servers,
        "ratios": ratios(found.runs, sizes_of(given)),
        "longest_gaps": found.longest_gaps,
        "left_out": found.left_out,
        "runs": found.runs,
    }


async def measure(
    given: argparse.Namespace, subjects: Sequence[Subject], questions: Sequence[str], found: Measured
) -> None:
    """One server's runs."""
    for subject in subjects:  # what is compiled or read at the first request
        await loaded(subject, 2, questions[:2])
    # before the repeats, which the limit of time may cut
    for subject in subjects if given.stall else ():
        gaps = found.longest_gaps[subject.name] = await stalled(subject, questions, given.stall)
        print(f"{subject.name}, longest gaps: {gaps}", file=sys.stderr)
    for repeat, clients in product(range(given.repeats), sizes_of(given)):
        first = repeat % len(subjects)
        for subject in (*subjects[first:], *subjects[:first]):
            if found.seconds_left < 0:
                found.left_out.append(f"{subject.name}, {clients} clients, repeat {repeat}")
                continue
            run = await loaded(subject, clients, questions)
            found.runs.append({"server": subject.name, "clients": clients, "repeat": repeat, **run})
            print(f"{subject.name}, {clients} clients: {run['tokens_per_second']:.1f} tokens/s", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--start", action="append", default=[], choices=STARTED, help="may be given several times")
    parser.add_argument("--server", action="append", default=[], help="NAME=ADDRESS; may be given several times")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--weights", default="int4", help="of forerun")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--context", type=int, default=4096, help="tokens of a sequence in the other servers")
    parser.add_argument("--llama-server", default="llama-server", help="its program")
    parser.add_argument("--llama-model", default="", help="its file; the model's own GGUF file if not given")
    parser.add_argument("--vllm-python", default="python", help="the Python that has vLLM")
    parser.add_argument("--clients", default="1,4,8,16")
    parser.add_argument("--requests", type=int, default=24)
    parser.add_argument("--new", type=int, default=64, help="tokens of each answer")
    parser.add_argument("--longest", type=int, default=2000, help="characters of a question")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=8.0, help="after which no further run begins")
    parser.add_argument("--stall", type=int, default=0, help="tokens of a long prompt that comes while others run")
    parser.add_argument("--api-key", default="")
    given = parser.parse_args()
    # what was started is ended, too, where this is
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    result = asyncio.run(measured(given))
    about = {
        "command": " ".join(sys.argv),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "hardware": hardware(),
    }
    given.out.write_text(json.dumps({**about, **result}, indent=1) + "\n", encoding="utf-8")
    for line in result["ratios"]:
        print(
            f"{line['server']}, {line['clients']} clients: {line['speculative_over_plain']:.3f} of plain, "
            f"{line['equal_texts']:.0%} equal texts"
        )
    for name in result["left_out"]:
        print(f"left out: {name}")


if __name__ == "__main__":
    main()
