"""Calls that a user's type checker takes, each with the type that it gives. test_typed.py checks; nothing runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, assert_type

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import forerun
from forerun import Engine, Message, Piece, Prompt, Prompts, RequestOptions, Result
from forerun.drafters.none import NoDraft
from forerun.policies.fixed import Fixed


def loading(model: nn.Module, anything: Any) -> Engine:
    forerun.load("smollm2", drafter="lookup", policy="fixed", policy_options={"k": 7})
    forerun.load(
        Path("model"), "tokenizer.json", dtype="bfloat16", device="cpu", runner="lean", weights="int4", activations=8
    )
    forerun.load(model, anything, dtype=torch.float32, device=torch.device("cpu"))
    forerun.load_system("system.json", weights="int8")
    forerun.custom_generate("lookup", "heuristic", tokenizer=anything)
    return forerun.load(anything, drafter=lambda target: NoDraft(), policy=lambda: Fixed(4))


def one_prompt(
    engine: Engine, messages: list[dict[str, str]], loose: list[dict[str, Any]], typed: list[Message]
) -> None:
    assert_type(engine.generate("text", max_new_tokens=8), Result)
    assert_type(engine.generate([1, 2, 3]), Result)
    assert_type(engine.generate((1, 2, 3)), Result)
    assert_type(engine.generate([{"role": "user", "content": "Hi"}]), Result)
    assert_type(engine.generate([{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]), Result)
    assert_type(engine.generate(messages), Result)
    assert_type(engine.generate(loose), Result)
    assert_type(engine.generate(typed, max_batch=None), Result)


def many_prompts(engine: Engine, chats: list[list[dict[str, str]]], ids: list[list[int]], rows: list[Tensor]) -> None:
    assert_type(engine.generate(["one", "two"], max_new_tokens=8), list[Result])
    assert_type(engine.generate(["text", [1, 2], [{"role": "user", "content": "Hi"}]]), list[Result])
    assert_type(engine.generate([[1, 2], [3]]), list[Result])
    assert_type(engine.generate(chats), list[Result])
    assert_type(engine.generate(ids), list[Result])
    assert_type(engine.generate(rows), list[Result])


def rows_of_ids(
    engine: Engine, rows: Tensor, array: NDArray[np.int64], encoded: dict[str, Tensor], any: Prompt
) -> None:
    """One prompt or a batch, which their types don't tell."""
    assert_type(engine.generate(rows), Result | list[Result])
    assert_type(engine.generate(array), Result | list[Result])
    assert_type(engine.generate(encoded), Result | list[Result])
    assert_type(engine.generate(any), Result | list[Result])


def options(engine: Engine, forbid: forerun.LogitsProcessor, read: dict[str, Any], prompts: Prompts) -> None:
    def own(ids: Tensor, scores: Tensor) -> Tensor:
        return scores

    asked: RequestOptions = {"temperature": 0.7, "top_k": 3, "seed": None, "stop": ["."], "processors": [own, forbid]}
    engine.generate("text", **asked)
    assert_type(engine.generate(prompts, **asked), list[Result])
    result: Result = engine.generate("text", **read)
    engine.generate("text", processors=own, stop="x", stop_token_ids=(1, 2), logprobs=True, ignore_eos=True)
    engine.generate("text", processors=forerun.row_wise(own), stop_token_ids=torch.tensor([1]), temperature=1)
    engine.generate("text", processors=lambda ids, scores: scores, generation_config=False, speculate=None)
    for number, result in engine.each([("one", {"seed": 1}), ([1, 2], asked), (torch.tensor([1]), {})]):
        assert_type(number, int)
        assert_type(result, Result)
    for piece in engine.stream("text", max_new_tokens=8):
        assert_type(piece, Piece)


def results(engine: Engine) -> str:
    result = engine.using("self", "threshold", drafter_options={"skip_attention": (3, 4)}).generate("text")
    assert_type(result.finish_reason, Literal["stop", "length"])
    assert_type(result.text, str | None)
    return result.text or ""
