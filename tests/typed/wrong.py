"""Calls that a user's type checker refuses, each with the code of the error. test_typed.py checks; nothing runs."""

from __future__ import annotations

import forerun
from forerun import Engine, Prompt, RequestOptions


def options(engine: Engine) -> None:
    engine.generate("text", temprature=0.7)  # error: [call-overload]
    engine.generate("text", max_new_tokens="8")  # error: [call-overload]
    engine.generate("text", stop=3)  # error: [call-overload]
    engine.generate("text", processors=len)  # error: [call-overload]
    engine.stream("text", temprature=0.7)  # error: [call-arg]
    engine.stream("text", max_batch=4)  # error: [call-arg]
    engine.stream("text", speculate="no")  # error: [arg-type]
    list(engine.each([("text", {"temprature": 0.7})]))  # error: [typeddict-unknown-key]
    list(engine.each([("text", {"seed": "1"})]))  # error: [typeddict-item]
    asked: RequestOptions = {"max_tokens": 8}  # error: [typeddict-unknown-key]
    engine.generate("text", **asked)


def prompts(engine: Engine) -> None:
    engine.generate(3)  # error: [call-overload]
    engine.generate({1, 2})  # error: [call-overload]
    engine.stream(["one", "two"])  # error: [arg-type]
    engine.stream([[1, 2], [3, 4]])  # error: [arg-type]


def results(engine: Engine, prompt: Prompt) -> None:
    print(engine.generate(["one", "two"]).text)  # error: [attr-defined]
    print(engine.generate("text")[0])  # error: [index]
    print(engine.generate(prompt).text)  # error: [union-attr]
    print(engine.generate("text").finish_reason == "eos")  # error: [comparison-overlap]
    print(engine.generate("text").txt)  # error: [attr-defined]


def loading() -> None:
    forerun.load("smollm2", weights="int2")  # error: [arg-type]
    forerun.load("smollm2", dtype="fp16")  # error: [arg-type]
    forerun.load("smollm2", runner="fast")  # error: [arg-type]
    forerun.load(3)  # error: [arg-type]
    forerun.load("smollm2", 3)  # error: [arg-type]
    forerun.load("smollm2", drafter=3)  # error: [arg-type]
    forerun.load("smollm2", drafter_option={})  # error: [call-arg]
    forerun.load_system("system.json", weights="int2")  # error: [arg-type]
    forerun.custom_generate("lookup", policy=3)  # error: [arg-type]
