"""Engines on tiny models, their traces, and traces made by hand."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import forerun
from forerun.core.cost import Costs
from forerun.core.identity import Identity, Pair, identity_of
from forerun.core.values import Signals
from forerun.models.loading.load import Module
from forerun.testing import VOCABULARY, tiny_model
from forerun.traces.read import Trace, TracedAnswer, TraceHeader, position_of, read_trace
from forerun.traces.record import TracedPrompt, trace
from forerun.train.data.examples import Example
from forerun.train.distil.adapter import shape_like
from forerun.train.distil.adapter_run import train_adapter
from forerun.train.distil.recipe import DistilRecipe
from forerun.train.distil.run import DistilRun

PROMPTS = [(5, 6, 7, 5, 6, 7, 5, 6), (1, 2, 3, 4), (9,) * 12, (11, 12, 11)]
NEW = 24
PAIR = Pair(Identity("llama", 4, 32, 97, "0" * 16), "drafter")


def model() -> Any:
    return tiny_model("llama")


def draft_of(target: Any, noise: float = 0.01) -> Any:
    """A model that often agrees with the target."""
    draft = copy.deepcopy(target)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in draft.parameters():
            parameter += noise * torch.randn(parameter.shape, generator=generator)
    return draft


def adapter_of(target: Any, folder: Path, inputs: str, exit_layer: int) -> Path:
    """An exit adapter that has learnt some of what the target answers."""
    engine = forerun.load(target)
    answers = [
        Example((*ids, *engine.generate(list(ids), max_new_tokens=NEW, speculate=False).ids), len(ids))
        for ids in PROMPTS
    ]
    run = DistilRun(
        shape=shape_like(target.config, exit_layer, inputs, depth=1),
        recipe=DistilRecipe(epochs=10, learning_rate=5e-3, warmup=5, vocabulary=VOCABULARY),
        examples=answers,
        stores=(),
        output=folder / inputs,
        held_out=0.25,
    )
    train_adapter(
        run,
        Module(target, None, "tiny", None),
        identity_of(target, None),
        engine=lambda: engine,
        begin=lambda what, ticks: lambda: None,
        log=lambda now: None,
    )
    return run.output


def engine_with(drafter: str, target: Any = None) -> forerun.Engine:
    """The target with a drafter: lookup, self (exit 3), draft_model (noisy) or hybrid (lookup, then exit 3)."""
    target = model() if target is None else target
    options: dict[str, dict[str, Any]] = {
        "self": {"exit_layer": 3},
        "draft_model": {"model": draft_of(target)} if drafter == "draft_model" else {},
        "hybrid": {"then": "self", "exit_layer": 3},
    }
    return forerun.load(target, drafter=drafter, drafter_options=options.get(drafter, {}))


def header_of(engine: forerun.Engine, drafter: str = "self", **changes: Any) -> TraceHeader:
    values: dict[str, Any] = {
        "model": engine.name,
        "pair": engine.pair,
        "drafter": drafter,
        "drafter_options": {},
        "depth": 6,
        "top": 3,
        "max_new_tokens": NEW,
        "hidden": False,
        "asked": len(PROMPTS),
        "costs": None,
        "about": {},
    }
    return TraceHeader(**{**values, **changes})


def asked(prompts: Sequence[tuple[int, ...]] = PROMPTS) -> list[TracedPrompt]:
    return [TracedPrompt(f"prompt-{number}", "all", ids) for number, ids in enumerate(prompts)]


def traced(engine: forerun.Engine, file: Path, drafter: str = "self", **changes: Any) -> Trace:
    for _ in trace(engine, header_of(engine, drafter, **changes), file, asked()):
        pass
    return read_trace(file)


def by_hand(
    *answers: Sequence[tuple[int, Sequence[float]]], costs: Costs | None = None, prompt: int = 5, depth: int = 4
) -> Trace:
    """A trace of answers of zeros: for each position how many drafted tokens agree, and the confidence of each."""
    made = []
    for number, places in enumerate(answers):
        tokens = (0,) * (len(places) + 1)
        positions = tuple(
            position_of(
                (0,) * agreed + (1,) * (len(confidences) - agreed),
                tuple(Signals(one, one, 1 - one, (one,)) for one in confidences),
                (0,) * len(confidences),
            )
            for agreed, confidences in places
        )
        made.append(TracedAnswer(f"answer-{number}", "all", (3,) * prompt, tokens, len(tokens), positions))
    header = TraceHeader("tiny", PAIR, "self", {}, depth, 1, 64, False, len(made), costs, {})
    return Trace(Path("hand.jsonl"), header, tuple(made))
