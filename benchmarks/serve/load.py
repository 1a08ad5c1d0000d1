"""Load on running servers: tokens a second, time to the first token and gaps, by the number of clients at once.

    forerun serve smollm2 --weights int4 --threads 2 --port 8000 --no-remember &
    llama-server -m MODEL.gguf -t 2 --parallel 16 -c 32768 --no-webui --port 8080 &
    python benchmarks/serve/load.py SUITE OUT.json --server forerun=http://127.0.0.1:8000 \\
        --server llama-server=http://127.0.0.1:8080

forerun's server is asked plainly and with drafts, by turns on the same prompts; any other server as it was started. All
answers have the same number of tokens, at temperature 0. Each client asks its next question when it has its answer. Ratios
hold within one run only. --stall N also sends a prompt of N tokens while others run, and tells their longest gaps.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import sha256
from itertools import pairwise, product
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter
from typing import Any

import httpx

from forerun.bench.suite import read_suite
from forerun.engine.measurement_conditions import hardware

FORERUN_MODES: dict[str, dict[str, Any]] = {"plain": {"speculate": False}, "speculative": {}}
STALLED = 4  # clients that run while a long prompt comes


def subjects(given: argparse.Namespace) -> dict[str, tuple[str, str, dict[str, Any]]]:
    """By name: address, model, what every request says."""
    found: dict[str, tuple[str, str, dict[str, Any]]] = {}
    for text in given.server:
        name, _, address = text.partition("=")
        if not address:
            raise SystemExit(f"--server takes NAME=ADDRESS, got {text}")
        model = httpx.get(f"{address}/v1/models", headers=headers(given), timeout=30).json()["data"][0]
        modes = FORERUN_MODES if "forerun" in model else {"as started": {}}
        for mode, fields in modes.items():
            found[f"{name} {mode}"] = address, model["id"], fields
    return found


def headers(given: argparse.Namespace) -> dict[str, str]:
    return {"Authorization": f"Bearer {given.api_key}"} if given.api_key else {}


async def ask(client: httpx.AsyncClient, body: dict[str, Any]) -> dict[str, Any]:
    """One answer: its tokens, text, and when each of its pieces came, in seconds from the request."""
    begun, times, text, tokens = perf_counter(), [], [], 0
    async with client.stream("POST", "/v1/chat/completions", json=body) as response:
        if response.status_code != 200:
            raise SystemExit(f"{response.status_code}: {(await response.aread()).decode()[:300]}")
        async for line in response.aiter_lines():
            if not line.startswith("data: ") or line == "data: [DONE]":
                continue
            chunk = json.loads(line.removeprefix("data: "))
            if usage := chunk.get("usage"):
                tokens = usage["completion_tokens"]
            for choice in chunk["choices"]:
                if content := choice["delta"].get("content"):
                    times.append(perf_counter() - begun)
                    text.append(content)
    return {"tokens": tokens, "times": times, "text": "".join(text), "seconds": perf_counter() - begun}


def body_of(question: str, model: str, fields: dict[str, Any], new: int) -> dict[str, Any]:
    return {
        "model": model,
        "messages": [{"role": "user", "content": question}],
        "max_tokens": new,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
        **fields,
    }


async def loaded(
    given: argparse.Namespace, subject: tuple[str, str, dict[str, Any]], clients: int, questions: Sequence[str]
) -> dict[str, Any]:
    """The questions, asked by so many clients at once."""
    address, model, fields = subject
    left, answers = list(enumerate(questions)), {}
    limits = httpx.Limits(max_keepalive_connections=0)  # llama-server closes connections when it likes
    async with httpx.AsyncClient(base_url=address, headers=headers(given), timeout=600, limits=limits) as client:

        async def one() -> None:
            while left:
                number, question = left.pop(0)
                answers[number] = await ask(client, body_of(question, model, fields, given.new))

        begun = perf_counter()
        await asyncio.gather(*(one() for _ in range(clients)))
        seconds = perf_counter() - begun
    return summed([answers[number] for number in sorted(answers)], seconds)


async def stalled(given: argparse.Namespace, subject: tuple[str, str, dict[str, Any]], questions: Sequence[str]) -> Any:
    """The longest gaps of running answers, without and with a long prompt that comes in the middle."""
    address, model, fields = subject
    found: dict[str, float] = {}
    async with httpx.AsyncClient(base_url=address, headers=headers(given), timeout=600) as client:
        for name in ("without", "with"):
            running = [
                asyncio.create_task(ask(client, body_of(question, model, fields, given.new)))
                for question in questions[:STALLED]
            ]
            await asyncio.sleep(0.5)
            if name == "with":
                long = "".join(f"{name} {number}, " for number in range(given.stall))[: 3 * given.stall]
                await ask(client, body_of(f"{perf_counter()} {long}", model, fields, 1))
            found[name] = max(max(gaps(answer)) for answer in await asyncio.gather(*running))
    return found


def gaps(answer: dict[str, Any]) -> list[float]:
    times = answer["times"]
    return [later - earlier for earlier, later in pairwise(times)] or [0.0]


def summed(answers: Sequence[dict[str, Any]], seconds: float) -> dict[str, Any]:
    first = [answer["times"][0] for answer in answers if answer["times"]]
    between = [gap for answer in answers for gap in gaps(answer)]
    return {
        "tokens": sum(answer["tokens"] for answer in answers),
        "seconds": seconds,
        "tokens_per_second": sum(answer["tokens"] for answer in answers) / seconds,
        "first_token": percentiles(first),
        "gap": {**percentiles(between), "longest": max(between)},
        "texts": [sha256(answer["text"].encode()).hexdigest()[:12] for answer in answers],
    }


def percentiles(values: Sequence[float]) -> dict[str, float]:
    cut = quantiles(values, n=100, method="inclusive") if len(values) > 1 else [values[0]] * 99
    return {"p50": cut[49], "p99": cut[98]}


def ratios(runs: Sequence[dict[str, Any]], sizes: Sequence[int]) -> list[dict[str, Any]]:
    """With drafts over plain, for each number of clients: each repeat's two runs are compared with each other."""
    found: list[dict[str, Any]] = []
    servers = dict.fromkeys(run["server"].rpartition(" ")[0] for run in runs if run["server"].endswith(" speculative"))
    for server, clients in product(servers, sizes):
        own = [run for run in runs if run["clients"] == clients]
        plain, drafted = ([run for run in own if run["server"] == f"{server} {mode}"] for mode in FORERUN_MODES)
        pairs = list(zip(plain, drafted, strict=True))
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


async def measured(given: argparse.Namespace) -> dict[str, Any]:
    questions = [item.question.turns[0] for item in read_suite(given.suite)]
    questions = [question for question in questions if len(question) <= given.longest]
    questions = questions[:: max(len(questions) // given.requests, 1)][: given.requests]  # of every category
    sizes = [int(size) for size in given.clients.split(",")]
    servers, runs = subjects(given), []
    for subject in servers.values():  # what is compiled or read at the first request
        await loaded(given, subject, 2, questions[:2])
    for repeat, clients in product(range(given.repeats), sizes):
        order = list(servers)
        for name in order[repeat % len(order) :] + order[: repeat % len(order)]:
            run = await loaded(given, servers[name], clients, questions)
            runs.append({"server": name, "clients": clients, "repeat": repeat, **run})
            print(f"{name}, {clients} clients: {run['tokens_per_second']:.1f} tokens/s", file=sys.stderr)
    result = {"ratios": ratios(runs, sizes), "runs": runs}
    if given.stall:
        result["longest_gaps"] = {name: await stalled(given, servers[name], questions) for name in servers}
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--server", action="append", required=True, help="NAME=ADDRESS; may be given several times")
    parser.add_argument("--clients", default="1,4,8,16")
    parser.add_argument("--requests", type=int, default=48)
    parser.add_argument("--new", type=int, default=128, help="tokens of each answer")
    parser.add_argument("--longest", type=int, default=2000, help="characters of a question")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--stall", type=int, default=0, help="tokens of a long prompt that comes while others run")
    parser.add_argument("--api-key", default="")
    given = parser.parse_args()
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


if __name__ == "__main__":
    main()
