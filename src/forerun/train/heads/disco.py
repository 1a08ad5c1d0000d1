"""Training a lookahead classifier on traces: from a draft's law at a step to whether the target accepts.

The features are the law's largest probabilities, its entropy and the step's place; the labels are of greedy drafts, up to
and with the first rejection. The threshold is the one whose draft lengths are the fastest on held-out answers.

Source: Mamou et al., DISCO, arXiv 2405.04304.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from ...models.files.classifier_heads import (
    LOOKAHEAD,
    ClassifierHeadFile,
    lookahead_features,
    lookahead_logits,
    write_classifier_head,
)
from ...traces.read import Position, Trace, TracedAnswer
from ..data.examples import held_back
from .acceptance import cross_entropy
from .draft_length import best_threshold, drafts_of
from .recipes import DiscoRecipe

SURE = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoRun:
    """cost: a draft step's, in target forwards, which the threshold is chosen for; None is what the trace measured."""

    traces: Sequence[Trace]
    recipe: DiscoRecipe
    output: Path
    held_out: float = 0.2
    cost: float | None = None


@dataclass(frozen=True, slots=True)
class DiscoReport:
    """As acceptance_run.HeadReport."""

    output: str
    answers: int
    held_out: int
    steps: int
    accepted: float
    cross_entropy: float
    constant: float
    epoch: int
    cost: float
    tau: float
    time_per_token: float
    seconds: float


def train_disco(run: DiscoRun, tick: Callable[[], None] = lambda: None) -> DiscoReport:
    """Train and write; tick is called after each epoch. Raises ValueError on traces that can't be used together."""
    begun = perf_counter()
    _check(run)
    cost = _cost_of(run.traces[0]) if run.cost is None else run.cost
    answers = [answer for trace in run.traces for answer in trace.answers]
    learn, out = _split(answers, run.held_out, run.recipe.seed)
    features, labels = _examples(learn, run.recipe.top)
    held_features, held_labels = _examples(out, run.recipe.top)
    weights, epoch, best = fit_classifier(features, labels, held_features, held_labels, run.recipe, tick)
    depth = max(trace.header.depth for trace in run.traces)
    tau, time = best_threshold(drafts_of(_chains(weights, out, run.recipe.top), depth), cost)
    report = DiscoReport(
        output=str(run.output),
        answers=len(learn),
        held_out=len(out),
        steps=len(labels),
        accepted=float(labels.mean()),
        cross_entropy=best,
        constant=cross_entropy(labels.mean().expand_as(held_labels), held_labels),
        epoch=epoch,
        cost=cost,
        tau=tau,
        time_per_token=time,
        seconds=perf_counter() - begun,
    )
    trained = {**asdict(report), "recipe": asdict(run.recipe)}
    write_classifier_head(
        LOOKAHEAD, ClassifierHeadFile(run.traces[0].header.pair, weights, tau, trained=trained), run.output
    )
    return report


def fit_classifier(
    features: Tensor,
    labels: Tensor,
    held_features: Tensor,
    held_labels: Tensor,
    recipe: DiscoRecipe,
    tick: Callable[[], None] = lambda: None,
) -> tuple[dict[str, Tensor], int, float]:
    """The best epoch's weights, its number and its held-out cross-entropy in nats; features [n, F], labels [n] in [0, 1]."""
    generator = torch.Generator().manual_seed(recipe.seed)
    weights = _begun(features, labels, recipe.width, generator)
    learnt = [tensor for name, tensor in weights.items() if name not in ("mean", "deviation")]
    optimiser = torch.optim.AdamW(learnt, lr=recipe.learning_rate, weight_decay=recipe.weight_decay)

    def judged(epoch: int) -> tuple[dict[str, Tensor], int, float]:
        with torch.no_grad():
            now = cross_entropy(lookahead_logits(weights, held_features).sigmoid(), held_labels)
        return {name: tensor.detach().clone() for name, tensor in weights.items()}, epoch, now

    best = judged(0)
    for epoch in range(1, recipe.epochs + 1):
        for rows in torch.randperm(len(labels), generator=generator).split(recipe.rows):
            optimiser.zero_grad()
            binary_cross_entropy_with_logits(lookahead_logits(weights, features[rows]), labels[rows]).backward()
            optimiser.step()
        best = min(best, judged(epoch), key=lambda one: one[2])
        tick()
    return best


def steps_of(position: Position, follow: int, top: int) -> Iterator[tuple[tuple[float, ...], float]]:
    """Features and label of each step, 1 up to the first rejection; follow: how many tokens of the answer are after it.

    A step without a law (lookup) has none.
    """
    for index, signals in enumerate(position.signals[:follow]):
        if signals is not None:
            if len(signals.top) < top:
                raise ValueError(
                    f"the trace holds {len(signals.top)} of the largest probabilities and {top} are to be read; take a "
                    "smaller top, or trace more"
                )
            yield lookahead_features(signals.top[:top], signals.entropy, index + 1), float(index < position.agreed)


def _steps(answer: TracedAnswer, top: int) -> Iterator[list[tuple[tuple[float, ...], float]]]:
    for index, position in enumerate(answer.positions):
        yield list(steps_of(position, len(answer.tokens) - index - 1, top))


def _up_to_rejection(steps: Sequence[tuple[tuple[float, ...], float]]) -> Iterator[tuple[tuple[float, ...], float]]:
    """The steps up to the first rejection; later ones are worthless whatever they hold, and not learnt from."""
    for step in steps:
        yield step
        if not step[1]:
            return


def _examples(answers: Sequence[TracedAnswer], top: int) -> tuple[Tensor, Tensor]:
    found = [step for answer in answers for steps in _steps(answer, top) for step in _up_to_rejection(steps)]
    if not found:
        raise ValueError("the traces hold no drafted token with a law; take longer answers, or a drafter that has laws")
    return torch.tensor([one for one, _ in found]), torch.tensor([label for _, label in found])


def _chains(
    weights: dict[str, Tensor], answers: Sequence[TracedAnswer], top: int
) -> Iterator[tuple[list[float], list[float]]]:
    for answer in answers:
        for steps in _steps(answer, top):
            if steps:
                with torch.no_grad():
                    says = lookahead_logits(weights, torch.tensor([one for one, _ in steps])).sigmoid()
                yield says.tolist(), [label for _, label in steps]


def _begun(features: Tensor, labels: Tensor, width: int, generator: torch.Generator) -> dict[str, Tensor]:
    """A first layer at random, a last one that says the mean."""
    inputs = features.shape[1]
    weights = {
        "in.weight": torch.randn(width, inputs, generator=generator) / inputs**0.5,
        "in.bias": torch.zeros(width),
        "out.weight": torch.zeros(1, width),
        "out.bias": labels.mean().clamp(SURE, 1 - SURE).logit().reshape(1),
    }
    for tensor in weights.values():
        tensor.requires_grad_()
    weights["mean"] = features.mean(0)
    weights["deviation"] = features.std(0, correction=0).clamp_min(SURE)
    return weights


def _split(
    answers: Sequence[TracedAnswer], held_out: float, seed: int
) -> tuple[list[TracedAnswer], list[TracedAnswer]]:
    """By prompt, so that no answer is on both sides."""
    out = held_back((answer.prompt for answer in answers), held_out, seed, "prompts")
    return [one for one in answers if one.prompt not in out], [one for one in answers if one.prompt in out]


def _check(run: DiscoRun) -> None:
    if not run.traces:
        raise ValueError("a classifier is trained on at least one trace")
    for trace in run.traces[1:]:
        trace.check(run.traces[0].header.pair)


def _cost_of(trace: Trace) -> float:
    costs = trace.header.costs
    drafting = [] if costs is None else [one for one in costs.costs if one.plan.startswith("draft")]
    if costs is None or not drafting:
        raise ValueError(f"{trace.path} measured no cost of drafting; give one, in target forwards for a drafted token")
    steps = max(drafting[0].rows)
    return drafting[0].ms(steps) / steps / costs.target.ms(1)
