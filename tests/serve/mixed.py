"""Random requests with mixed options, and what the library answers to them."""

from __future__ import annotations

import random
from typing import Any

from forerun import Engine, Result
from forerun.core.processors import row_wise
from forerun.serve.requests.options import seeds
from forerun.serve.requests.processors import NoEndBefore, TokenBias

WORDS = (
    "to be or not to be, ",
    "abcabcabc",
    "once upon ",
    "é€ ",
    '{"a": 1}',
    "x = x + 1\n",
    "the cat sat on the mat. ",
)


def random_request(chance: random.Random) -> dict[str, Any]:
    """A body of /v1/completions."""
    body: dict[str, Any] = {
        "prompt": "".join(chance.choice(WORDS) for _ in range(chance.randint(1, 6))),
        "max_tokens": chance.randint(1, 24),
        "temperature": chance.choice([0, 0, 0.7, 1.0]),
        "seed": chance.randrange(2**40),
    }
    optional = {
        "n": chance.randint(1, 2),
        "top_k": chance.randint(1, 20),
        "top_p": 0.9,
        "min_p": 0.05,
        "stop": [chance.choice("abcdefgh"), "zq"],
        "logprobs": chance.randint(0, 2),
        "presence_penalty": 0.5,
        "frequency_penalty": -0.5,
        "repetition_penalty": 1.1,
        "logit_bias": {str(chance.randrange(256)): chance.choice([-100, 3.5])},
        "min_tokens": 1,
        "ignore_eos": True,
        "stop_token_ids": [chance.randrange(256)],
        "speculate": chance.random() < 0.5,
        "prediction": {"type": "content", "content": chance.choice(WORDS) * 2},
    }
    for name, value in optional.items():
        if chance.random() < 0.25:
            body[name] = value
    return body


def by_library(engine: Engine, body: dict[str, Any]) -> list[Result]:
    """The library's answers to such a body, one for each choice."""
    ids = engine.prompt_ids(body["prompt"])
    same = ("temperature", "top_k", "top_p", "min_p", "stop", "logprobs", "ignore_eos", "stop_token_ids", "speculate")
    penalties = ("presence_penalty", "frequency_penalty", "repetition_penalty")
    options = {name: body[name] for name in (*same, *penalties) if name in body}
    processors = []
    if "logit_bias" in body:
        processors.append(row_wise(TokenBias({int(token): value for token, value in body["logit_bias"].items()})))
    if "min_tokens" in body:
        ends = sorted({256, *body.get("stop_token_ids", ())})
        processors.append(row_wise(NoEndBefore(len(ids) + body["min_tokens"], ends)))
    if processors:
        options["processors"] = processors
    if "prediction" in body:
        options["prediction"] = body["prediction"]["content"]
    return [
        engine.generate(ids, max_new_tokens=body["max_tokens"], seed=seed, **options)
        for seed in seeds(body["seed"], body.get("n", 1))
    ]
