"""Sampled answers under JSON schemas: whether all are valid, how many tokens are forced, and what drafting them saves.

    python benchmarks/serve/schema.py smollm2 OUT.json --weights int4 --answers 200 --drafters none,suffix

Each answer is sampled at temperature 1 with a seed of its own: once decoded plainly under the mask, and once with each
drafter, by turns. A drafter that chooses its tokens, as these do, gives the same text as plain decoding; other texts are
counted. Times are those after the prompt was read. Ratios hold within one run only.

Every schema bounds the length of its answers: an unbounded number may have digits until the limit of tokens cuts it. A date
is valid as RFC 3339 says, which JSON Schema refers to: with a year 0000, which Python's dates don't have.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from datetime import UTC, date, datetime
from pathlib import Path
from statistics import quantiles
from typing import Any

import jsonschema

from forerun import Engine, load
from forerun.engine.answer import Result
from forerun.engine.measurement_conditions import conditions


def text(most: int) -> dict[str, Any]:
    return {"type": "string", "minLength": 1, "maxLength": most}


def record(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


PERSON = record(
    name=text(24),
    age={"type": "integer", "minimum": 0, "maximum": 120},
    email={"type": "string", "pattern": r"^[a-z]{2,10}@[a-z]{2,10}\.(com|org)$"},
    employed={"type": "boolean"},
    address=record(street=text(24), city=text(16), postal_code={"type": "string", "pattern": "^[0-9]{5}$"}),
)
REVIEW = record(
    product=text(24),
    sentiment={"enum": ["positive", "neutral", "negative"]},
    rating={"type": "integer", "minimum": 1, "maximum": 5},
    summary=text(80),
    keywords={"type": "array", "items": text(12), "minItems": 1, "maxItems": 4},
)
CALL = record(
    function={"enum": ["get_weather", "send_message", "create_event"]},
    arguments=record(
        location=text(20), date={"type": "string", "format": "date"}, unit={"enum": ["celsius", "fahrenheit", None]}
    ),
)
ROWS = record(
    table={"const": "measurements"},
    rows={
        "type": "array",
        "items": record(
            sensor_id={"type": "integer", "minimum": 1, "maximum": 99},
            # a multiple has a last digit
            temperature={"type": "number", "minimum": -50, "maximum": 60, "multipleOf": 0.5},
        ),
        "minItems": 2,
        "maxItems": 4,
    },
)
TASKS = (
    (PERSON, "Invent a person who lives in {}. Answer in JSON."),
    (REVIEW, "A customer in {} wrote a review of a coffee machine. Summarise it in JSON."),
    (CALL, "What is the weather in {}? Answer with a function call in JSON."),
    (ROWS, "Give temperatures that sensors in {} measured, as JSON."),
)
FORMATS = jsonschema.FormatChecker([])
PLACES = ("Paris", "Lima", "Oslo", "Cairo", "Perth", "Quito", "Delhi", "Turin", "Osaka", "Leeds")


@FORMATS.checks("date", ValueError)
def is_date(value: object) -> bool:
    """full-date of RFC 3339, in which the years go from 0000 to 9999. Raises ValueError on a day that isn't."""
    if isinstance(value, str):
        if not re.fullmatch("[0-9]{4}-[0-9]{2}-[0-9]{2}", value, re.ASCII):
            return False
        # 400 years later the calendar is the same
        date.fromisoformat(value.replace("0000", "0400", 1) if value.startswith("0000") else value)
    return True


def task(number: int) -> tuple[dict[str, Any], str]:
    schema, prompt = TASKS[number % len(TASKS)]
    return schema, prompt.format(PLACES[number // len(TASKS) % len(PLACES)])


def answer(engine: Engine, number: int, speculate: bool, most: int) -> Result:
    schema, prompt = task(number)
    messages = [{"role": "user", "content": prompt}]
    options: dict[str, Any] = {"temperature": 1.0, "seed": number, "max_new_tokens": most, "speculate": speculate}
    return engine.generate(messages, json_schema=schema, **options)


def fits(result: Result, number: int) -> bool:
    try:
        jsonschema.validate(json.loads(result.text or ""), task(number)[0], format_checker=FORMATS)
    except (ValueError, jsonschema.ValidationError):
        return False
    return True


def told(results: list[Result], plain: list[Result]) -> dict[str, Any]:
    """One subject's figures, beside masked plain decoding of the same requests."""
    ratios = [other.stats.decode_seconds / own.stats.decode_seconds for own, other in zip(results, plain, strict=True)]
    seconds = sum(one.stats.decode_seconds for one in results)
    tokens = sum(one.stats.decoded for one in results)
    return {
        "valid": sum(fits(one, number) for number, one in enumerate(results)),
        "finished": sum(one.finish_reason == "stop" for one in results),
        "equal_to_plain": sum(one.ids == other.ids for one, other in zip(results, plain, strict=True)),
        "tokens": tokens,
        "seconds": seconds,
        "tokens_per_second": tokens / seconds,
        "tokens_per_round": tokens / sum(one.stats.rounds for one in results),
        "forced_share": sum(one.stats.forced for one in results) / tokens,
        "acceptance": sum(one.stats.accepted for one in results) / max(sum(one.stats.drafted for one in results), 1),
        "law_share": sum(one.stats.law_seconds for one in results) / seconds,
        "speedup": sum(one.stats.decode_seconds for one in plain) / seconds,
        "speedup_quartiles": quantiles(ratios, n=4) if len(ratios) > 1 else ratios,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("output", type=Path)
    parser.add_argument("--weights", default="")
    parser.add_argument("--answers", type=int, default=200)
    parser.add_argument("--drafters", default="none,suffix")
    parser.add_argument("--max-new-tokens", type=int, default=400)
    given = parser.parse_args()
    plain = load(given.model, weights=given.weights)
    engines = {name: plain.using(name, "fixed") for name in given.drafters.split(",")}
    subjects = {"plain": (plain, False), **{name: (engine, True) for name, engine in engines.items()}}
    for number in range(len(TASKS)):  # compiles the grammars and warms up
        for engine, speculate in subjects.values():
            answer(engine, number, speculate, 32)
    results: dict[str, list[Result]] = {name: [] for name in subjects}
    for number in range(given.answers):
        order = [*subjects][number % len(subjects) :] + [*subjects][: number % len(subjects)]
        for name in order:
            engine, speculate = subjects[name]
            results[name].append(answer(engine, number, speculate, given.max_new_tokens))
        print(f"{number + 1} of {given.answers}", file=sys.stderr)
    report = {
        "model": given.model,
        "weights": given.weights,
        "answers": given.answers,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        **conditions(plain, " ".join(["python", *sys.argv])),
        "subjects": {name: told(own, results["plain"]) for name, own in results.items()},
    }
    given.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(report["subjects"], indent=1))


if __name__ == "__main__":
    main()
