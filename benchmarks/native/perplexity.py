"""Perplexity of answers under each form of the weights, and how far logits are from exact arithmetic on the same codes.

    python benchmarks/native/perplexity.py smollm2 SUITE.jsonl benchmarks/native/perplexity-smollm2.json [--note TEXT]
    python benchmarks/native/perplexity.py MODEL PAIRS.jsonl OUT.json --pairs

The answers are what the float32 model says greedily to the suite's first turns, or those of a file with a "prompt" and an
"answer" a line. "Exact" is float32 arithmetic on dense weights that hold what the form's codes stand for, those of the
native kernels where they run. Errors are over all logits of the answers' rows, as a share of the exact ones' spread.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import AsyncGenerator, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from forerun import Engine, load
from forerun.bench.suite import read_suite
from forerun.core.drive import drive
from forerun.core.forward import Rows
from forerun.core.values import ROOT
from forerun.engine.measurement_conditions import conditions
from forerun.engine.prompts.forms import encode
from forerun.models.lean.build import Decoder, in_turns
from forerun.models.lean.linear import Linear, Plain
from forerun.models.lean.native.library import SWITCH
from forerun.models.lean.native.matrix import LANES
from forerun.models.lean.runner import LeanRunner
from forerun.models.packed.runner import Runner
from forerun.models.packed.sequence import Sequence

WEIGHTS = ("float32", "bf16", "int8", "int4")
LONGEST = 256  # tokens of a prompt; longer ones take their time and add nothing to an answer's rows

Pair = tuple[list[int], list[int]]


def exact(runner: LeanRunner) -> LeanRunner:
    """The same model in float32 arithmetic, on what its weights stand for."""

    def dense(own: Linear, order: Tensor | None = None) -> Plain:
        weight, bias = own.dense().float(), None if own.bias is None else own.bias[: own.rows].float()
        if order is not None:
            weight, bias = weight[order], None if bias is None else bias[order]
        return Plain(weight, bias)

    held = runner._decoder
    native = runner.kernels != "torch"
    order = in_turns(held.layers[0].gate_up.rows, LANES).argsort() if native else None
    layers = tuple(
        replace(one, qkv=dense(one.qkv), out=dense(one.out), gate_up=dense(one.gate_up, order), down=dense(one.down))
        for one in held.layers
    )
    table = dense(held.embedding)
    head = table if held.head is held.embedding else dense(held.head)
    return LeanRunner(
        runner._shape, runner._rotation, Decoder(table, layers, held.final_norm, head), runner.name, "exact arithmetic"
    )


def logits_of(runner: Runner, prompt: list[int], answer: list[int]) -> Tensor:
    """Of the rows that the answer's tokens are drawn from."""

    async def after_prompt() -> AsyncGenerator[Rows]:
        sequence = Sequence(runner)
        if len(prompt) > 1:
            await sequence.sync(prompt[:-1])
        yield await sequence.complete([prompt[-1], *answer[:-1]], range(ROOT, len(answer) - 1))

    return next(drive(after_prompt())).logits.float()


def judged(runner: Runner, pairs: list[Pair], wanted: list[Tensor]) -> dict[str, Any]:
    """Of all the answers' rows at once."""
    loss = squares = largest = divergence = 0.0
    rows = same = agreed = 0
    for (prompt, answer), right in zip(pairs, wanted, strict=True):
        logits, tokens = logits_of(runner, prompt, answer), torch.tensor(answer)
        own, others = logits.log_softmax(-1), right.log_softmax(-1)
        loss -= float(own.gather(1, tokens[:, None]).sum())
        divergence += float((others.exp() * (others - own)).sum())
        squares += float((logits - right).double().pow(2).mean(1).sum())
        largest = max(largest, float((logits - right).abs().max()))
        same += int((logits.argmax(-1) == right.argmax(-1)).sum())
        agreed += int((logits.argmax(-1) == tokens).sum())
        rows += len(answer)
    spread = float(torch.cat(wanted).double().std())
    return {
        "perplexity": float(torch.tensor(loss / rows).exp()),
        "first_choice_is_the_answers": agreed / rows,
        "rms_error": (squares / rows) ** 0.5 / spread,
        "largest_error": largest / spread,
        "divergence": divergence / rows,
        "first_choice_is_the_exact_one": same / rows,
    }


def opened(model: str, weights: str) -> Iterator[Engine]:
    """The ways in which a form runs here, that of the exact codes first; the second is the first in 8 bits."""
    os.environ.pop(SWITCH, None)
    engine = load(model, weights=weights, drafter="none")
    yield engine
    if engine.runner.activations is not None:
        engine.runner.use_activations(8)
        yield engine
    if engine.runner.kernels != "torch":
        os.environ[SWITCH] = "off"
        yield load(model, weights=weights, drafter="none")


def told_pairs(engine: Engine, file: Path) -> list[Pair]:
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    tokenizer = engine.tokenizer

    def ids(of: Any, prompt: bool) -> list[int]:
        if isinstance(of, list) and all(isinstance(token, int) for token in of):
            return of
        if prompt:
            return list(encode([{"role": "user", "content": of}] if isinstance(of, str) else of, tokenizer))
        return list(tokenizer(of, add_special_tokens=False).input_ids)

    return [(ids(line["prompt"], True), ids(line["answer"], False)) for line in lines]


def own_pairs(engine: Engine, suite: Path, count: int, new: int) -> list[Pair]:
    """Prompts from all over the suite and the engine's greedy answers."""
    questions = [{"role": "user", "content": item.question.turns[0]} for item in read_suite(suite)]
    encoded = [list(encode([question], engine.tokenizer)) for question in questions]
    fitting = [prompt for prompt in encoded if len(prompt) <= LONGEST]
    prompts = fitting[:: max(len(fitting) // count, 1)][:count]
    results = engine.generate(prompts, max_new_tokens=new, max_batch=8)
    return [(prompt, list(result.ids)) for prompt, result in zip(prompts, results, strict=True) if result.ids]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("source", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--pairs", action="store_true")
    parser.add_argument("--prompts", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--weights", nargs="*", default=WEIGHTS)
    parser.add_argument("--note", default="")
    given = parser.parse_args()
    plain = load(given.model, weights="float32", drafter="none")
    pairs = (
        told_pairs(plain, given.source) if given.pairs else own_pairs(plain, given.source, given.prompts, given.tokens)
    )
    about = {
        **conditions(plain, f"python benchmarks/native/perplexity.py {given.model} {given.source} {given.output}"),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "note": given.note,
        "prompts": len(pairs),
        "answer_tokens": sum(len(answer) for _, answer in pairs),
    }
    del plain
    forms = []
    for weights in given.weights:
        wanted: list[Tensor] = []
        for engine in opened(given.model, weights):
            runner = engine.runner
            if not wanted:
                right = exact(runner)
                wanted = [logits_of(right, *pair) for pair in pairs]
                del right
            forms.append(
                {
                    "weights": weights,
                    "kernels": runner.kernels,
                    "activations": runner.activations,
                    **judged(runner, pairs, wanted),
                }
            )
            print(json.dumps(forms[-1]), flush=True)
            # a large model takes long, and what is known is kept if the run is ended
            given.output.write_text(json.dumps({"about": about, "forms": forms}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
