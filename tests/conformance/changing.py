"""Who writes the text of a model that changes: the hook, an engine, and its own generate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import forerun

PROMPT = torch.tensor([[5, 6, 7, 5, 6, 8, 5, 6, 11, 12, 13, 14]])
OPTIONS: dict[str, Any] = {"do_sample": False, "max_new_tokens": 10}
SIZES: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "head_dim": 4}
Change = Callable[[Any], Any]
Writer = Callable[[Any], list[int]]


def bare_of(model: Any) -> Any:
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def own(model: Any) -> list[int]:
    ids: list[int] = model.generate(input_ids=PROMPT, **OPTIONS)[0, PROMPT.shape[1] :].tolist()
    return ids


def by_hook(model: Any) -> Writer:
    hook = forerun.custom_generate("self", drafter_options={"exit_layer": 1})

    def write(model: Any) -> list[int]:
        ids: list[int] = model.generate(input_ids=PROMPT, **OPTIONS, custom_generate=hook)[
            0, PROMPT.shape[1] :
        ].tolist()
        return ids

    return write


def by_engine(model: Any) -> Writer:
    engine = forerun.load(bare_of(model), drafter="self", drafter_options={"exit_layer": 1})
    return lambda model: list(engine.generate(PROMPT[0], max_new_tokens=OPTIONS["max_new_tokens"]).ids)


WRITERS = {"hook": by_hook, "engine": by_engine}


def check_followed(model: Any, change: Change, writer: str) -> None:
    """The writer's text is the model's own before the change and after it, each asked for twice."""
    before = own(model)
    write = WRITERS[writer](model)
    assert write(model) == write(model) == before
    change(model)
    expected = own(model)
    assert expected != before, "this change must show"
    assert write(model) == write(model) == expected
