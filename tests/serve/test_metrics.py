"""Prometheus's numbers are those of the answers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

import forerun

from .running import NAME, service, within

BODY = {"prompt": "abcabcabcabc", "temperature": 0, "max_tokens": 30, "ignore_eos": True}


def scraped(requests: int, **more: Any) -> tuple[dict[str, float], list[dict[str, Any]]]:
    async def work(caller: httpx.AsyncClient) -> Any:
        answers = [(await caller.post("/v1/completions", json={**BODY, **more})).json() for _ in range(requests)]
        return (await caller.get("/metrics")).text, answers

    text, answers = within(service(), work)
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            assert sample.labels["model_name"] == NAME
            labels = [value for name, value in sample.labels.items() if name not in ("model_name", "le")]
            found[" ".join([sample.name, *labels])] = sample.value
    return found, answers


def test_counts_are_the_sums_of_the_answers() -> None:
    found, answers = scraped(2)
    told = [answer["metrics"]["speculative_decoding"] for answer in answers]

    def total(name: str) -> int:
        return sum(one[name] for one in told)

    assert found["forerun:spec_decode_num_drafts_total"] == total("num_spec_steps") > 0
    assert found["forerun:spec_decode_num_draft_tokens_total"] == total("num_draft_tokens")
    assert found["forerun:spec_decode_num_accepted_tokens_total"] == total("num_accepted_draft_tokens")
    places = [
        value for name, value in found.items() if name.startswith("forerun:spec_decode_num_accepted_tokens_per_pos")
    ]
    assert sum(value for value in places if value < 1e6) == total("num_accepted_draft_tokens")
    assert found["forerun:generation_tokens_total"] == 60
    assert found["forerun:prompt_tokens_total"] == 24
    assert found["forerun:request_success_total length"] == 2
    for name in ("time_to_first_token", "request_queue_time", "e2e_request_latency", "request_time_per_output_token"):
        assert found[f"forerun:{name}_seconds_count"] == 2
    rounds = [found[f"forerun:rounds_total {name}"] for name in ("drafted", "held_back", "nothing_found")]
    assert sum(rounds) == found["forerun:inter_token_latency_seconds_count"]
    assert found["forerun:rounds_total off"] == 0
    assert found["forerun:num_requests_running"] == found["forerun:num_requests_waiting"] == 0


def test_rounds_of_requests_that_want_no_drafts_are_counted_apart() -> None:
    found, _ = scraped(2, speculate=False)
    rounds = {name: found[f"forerun:rounds_total {name}"] for name in ("drafted", "held_back", "nothing_found", "off")}

    assert rounds == {"drafted": 0, "held_back": 0, "nothing_found": 0, "off": 2 * 29}


def test_an_answer_s_histogram_adds_up() -> None:
    _, (answer,) = scraped(1)
    told = answer["metrics"]["speculative_decoding"]

    assert sum(told["acceptance_histogram"]) == told["num_spec_steps"]
    assert (
        sum(count * accepted for accepted, count in enumerate(told["acceptance_histogram"]))
        == told["num_accepted_draft_tokens"]
    )
    assert told["mean_acceptance_length"] == 1 + told["num_accepted_draft_tokens"] / told["num_spec_steps"]


def test_the_dashboard_asks_for_numbers_that_there_are() -> None:
    found, _ = scraped(1)
    board = json.loads((Path(forerun.__file__).parents[2] / "docs" / "grafana.json").read_text(encoding="utf-8"))
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    names = {name.split(" ")[0] for name in found}

    assert len(asked) > 8
    for expression in asked:
        used = re.findall(r"forerun:\w+", expression)
        assert used, expression
        assert set(used) <= names, expression
