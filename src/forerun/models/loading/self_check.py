"""Checks at load, on a few random tokens, that the packed forward gives what the model's own forward gives.

Two texts of different lengths run packed, one of them resumed after an early exit, then again after their own keys and
values, next to one forward of the model's own. It detects attention that bypasses forerun's, state between rows, positions
counted by rows, and a final part that isn't run. Effects of long texts are checked in checks.py.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from collections.abc import Sequence as Series
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...core.forward import Rows
from ...core.values import ROOT
from ...errors import UnsupportedModel, reason_of
from ..packed.plan import LayerPlan
from ..packed.request import Request
from ..packed.runner import HFRunner, Runner
from ..packed.sequence import Sequence
from .checks import cached_length

LENGTHS = (5, 9)
SPLIT = 4

# How far logits may be off, as a share of their spread: rounding alone stays an order of magnitude below.
TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-3, torch.float16: 3e-2, torch.bfloat16: 1e-1}

# A decoder that rounds in other places may be off by what its model's own rounding is: .14 of float32 for SmolLM2-135M in
# bfloat16, .32 after a fine-tune on a narrow task. A wrong layout or mask is off by more than 1.
OTHER_ROUNDING = 6


@dataclass(frozen=True, slots=True)
class _Touching(LayerPlan):
    """A plan whose layers run even if both their sublayers are skipped."""

    def skips_layer(self, layer: int) -> bool:
        return False


def self_check(runner: HFRunner, model: Any) -> None:
    """Raise UnsupportedModel unless runner gives what model, the user's own object, gives.

    If only the skipping of layers fails, the model is accepted without plans.
    This costs some four forwards of up to 18 rows. The model is neither changed nor run itself, but a copy that shares its
    parameters.
    """
    name = type(model).__name__
    check_logits(runner, own_logits(model), name, lambda: own_logits(model))
    if unseen := set(range(runner.num_layers)) - runner.attended:
        raise UnsupportedModel(
            f"{name}: layers {', '.join(map(str, sorted(unseen)))} have an attention of their own or recurrent state, not "
            "transformers' attention interface"
        )
    if (limit := cached_length(model.config, runner.patterns)) is not None:
        runner.max_length = min(limit, runner.max_length or limit)
    with _as_unsupported_model(f"{name} can't run packed"):
        moved = _moved_by_silent_layers(runner, _tokens(runner.vocab_size)[0].tolist()[: LENGTHS[0]])
    if moved:
        runner.refuse_plans(
            f"a layer without its attention and MLP changes its input (by {moved:.2g}), so none is skipped"
        )


def own_logits(model: Any) -> Tensor:
    """[texts, rows, V] of the model's own forward. Rows after a shorter text are not seen by its rows."""
    shared = {id(parameter): parameter for parameter in model.parameters()}
    tokens = _tokens(model.get_input_embeddings().weight.shape[0])
    with _as_unsupported_model(f"{type(model).__name__} can't run its own forward"), torch.inference_mode():
        copy = deepcopy(model, shared).eval()
        logits: Tensor = copy(input_ids=tokens.to(model.device), use_cache=False).logits
    if not logits.isfinite().all():
        raise UnsupportedModel(f"{type(model).__name__}: {_not_finite(model)}")
    return logits


def check_logits(runner: Runner, expected: Tensor, name: str, again: Callable[[], Tensor] | None = None) -> None:
    """Raise UnsupportedModel unless runner gives what own_logits gave for the model called name.

    again computes them once more, to detect that the model itself is random.
    """
    texts = [tokens[:length].tolist() for tokens, length in zip(_tokens(runner.vocab_size), LENGTHS, strict=True)]
    with _as_unsupported_model(f"{name} can't run packed"):
        actual = _packed_logits(runner, texts)
    tolerance = TOLERANCE.get(runner.dtype, 1e-3) * (1 if isinstance(runner, HFRunner) else OTHER_ROUNDING)
    for rows, own in zip(actual, expected, strict=True):
        off = _off(rows, own[: len(rows)])
        if not off <= tolerance:
            raise UnsupportedModel(f"{name}: {_found(rows, off, expected, again, tolerance)}")


def _tokens(vocabulary: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(vocabulary, (len(LENGTHS), max(LENGTHS)), generator=generator)


@contextmanager
def _as_unsupported_model(what: str) -> Iterator[None]:
    """Turns any error inside a model into one sentence, but not running out of memory."""
    try:
        yield
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except UnsupportedModel as error:
        raise UnsupportedModel(f"{what}: {error}") from error
    except Exception as error:
        raise UnsupportedModel(f"{what}: {type(error).__name__}: {reason_of(error)}") from error


def _packed_logits(runner: Runner, texts: Series[list[int]]) -> list[Tensor]:
    """Each text's logits: two packed forwards, the second after a prefix, the first joined by a text at a middle layer."""
    sequences = [Sequence(runner) for _ in texts]
    if runner.num_layers > 1:
        exit_plan = LayerPlan.early_exit(runner.num_layers // 2, runner.num_layers)
        _answer(runner, [sequences[0].forward(texts[0][:SPLIT], plan=exit_plan)])
    pieces: list[list[Tensor]] = [[] for _ in texts]
    for rows in (slice(None, SPLIT), slice(SPLIT, None)):
        waiting = [
            sequence.complete(text[rows], range(ROOT, len(text[rows]) - 1))
            for sequence, text in zip(sequences, texts, strict=True)
        ]
        for sequence, piece, answer in zip(sequences, pieces, _answer(runner, waiting), strict=True):
            piece.append(answer.logits)
            sequence.keep(range(len(answer.logits)))
    return [torch.cat(piece) for piece in pieces]


def _moved_by_silent_layers(runner: Runner, text: list[int]) -> float:
    """How far layers without attention and MLP move the residual stream."""
    every = frozenset(range(runner.num_layers))
    plan = _Touching(every, every)
    ends = frozenset({0, runner.num_layers})
    taps = _answer(runner, [Sequence(runner).forward(text, plan=plan, taps=ends)])[0].taps
    return float((taps[runner.num_layers] - taps[0]).abs().max())


def _answer(runner: Runner, waiting: Series[Coroutine[Request, Rows, Rows]]) -> list[Rows]:
    """Run one forward for all."""
    answers = runner.execute([one.send(None) for one in waiting])  # type: ignore[arg-type]
    results: list[Rows] = []
    for one, rows in zip(waiting, answers, strict=True):
        try:
            one.send(rows)
        except StopIteration as done:
            results.append(done.value)
    return results


def _off(actual: Tensor, expected: Tensor) -> float:
    """The distance of logits, as a share of their spread."""
    spread = (expected - expected.mean(-1, keepdim=True)).float().norm().clamp(min=1e-6)
    return float((actual.float() - expected.float()).norm() / spread)


def _found(rows: Tensor, off: float, expected: Tensor, again: Callable[[], Tensor] | None, tolerance: float) -> str:
    """The likely reason why the packed forward is off."""
    if again is not None and not (noise := _off(again(), expected)) <= tolerance:
        return (
            f"its own forward gives other logits each time (off by {noise:.2g} of their spread), so something in it is "
            "random, such as dropout or noise; turn that off"
        )
    if not rows.isfinite().all():
        return "the packed forward gives NaN or infinite logits where its own doesn't; try float32 or bfloat16"
    return (
        f"the packed forward is off by {off:.2g} of the logits' spread from the model's own (allowed: {tolerance:.2g}); its "
        "attention or its state doesn't go through transformers' attention interface alone"
    )


def _not_finite(model: Any) -> str:
    """Which weight holds NaN or infinity, or that none does."""
    for name, value in (*model.named_parameters(), *model.named_buffers()):
        if value.is_floating_point() and (count := int((~value.isfinite()).sum())):
            return (
                f"its weight {name} holds NaN or infinite values ({count} of {value.numel()}), so its logits are none; the "
                "checkpoint is damaged, download it again"
            )
    return f"its own logits are NaN or infinite though its weights are not; {model.dtype} overflows, try float32 or bfloat16"
