"""A whole training of an acceptance head: answers, what they give, the fit, the threshold, and the file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter

from torch import Tensor

from ...core.values import Sampling
from ...engine.engine import Engine
from ...models.files.classifier_heads import ACCEPTANCE, ClassifierHeadFile, write_classifier_head
from ..data.examples import Example, split
from .acceptance import Fitted, fit, joined, predicted
from .acceptance_data import LEAST_PROMPT, Drafted, collect
from .draft_length import best_threshold, drafts_of
from .recipes import HeadRecipe

DEPTH = 20
LEAST_STEPS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadRun:
    """What is learnt from, and where to. cost: a draft step's, in target forwards, which the threshold is chosen for."""

    examples: Sequence[Example]
    sampling: Sampling
    recipe: HeadRecipe
    output: Path
    held_out: float = 0.1
    cost: float = 0.1
    max_batch: int = 8

    def __post_init__(self) -> None:
        if not self.cost > 0:
            raise ValueError(f"a draft step's cost must be above 0 target forwards, got {self.cost}")
        if self.max_batch < 1:
            raise ValueError(f"at least 1 answer must go through a forward, got {self.max_batch}")


@dataclass(frozen=True, slots=True)
class HeadReport:
    """Cross-entropies in nats on the held-out texts' tokens; the constant says the mean of the others' everywhere.

    left_out: texts whose prompts are too short. h: the chosen threshold. time_per_token: in target forwards, as predicted.
    """

    output: str
    texts: int
    held_out: int
    left_out: int
    tokens: int
    accepted: float
    cross_entropy: float
    constant: float
    divergence: float
    epoch: int
    h: float
    time_per_token: float
    seconds: float


def train_head(run: HeadRun, engine: Engine, begin: Callable[[str, int], Callable[[], None]]) -> HeadReport:
    """Train a head for the engine's target and drafter and write it. begin starts a progress bar with so many ticks.

    Raises ValueError on data that can't be used, and UnsupportedOption on a drafter without hidden states.
    """
    begun = perf_counter()
    usable = [one for one in run.examples if one.start >= LEAST_PROMPT]
    learn, out = split(usable, run.held_out, run.recipe.seed)
    tick = begin("reading answers", len(learn) + len(out))
    found: list[Drafted | None] = [None] * (len(learn) + len(out))
    for index, drafted in collect(
        engine, [*learn, *out], run.sampling, run.recipe.mixing, run.recipe.seed, run.max_batch
    ):
        found[index] = drafted
        tick()
    parts = [one for one in found if one is not None]
    held = parts[len(learn) :]
    known = joined(parts[: len(learn)])
    fitted = fit(known, joined(held), run.recipe, begin("training", run.recipe.epochs))
    survival, time = best_threshold(
        drafts_of(_chains(fitted.weights, held, run.recipe.reject_weight), DEPTH), run.cost, LEAST_STEPS
    )
    report = HeadReport(
        output=str(run.output),
        texts=len(learn),
        held_out=len(out),
        left_out=len(run.examples) - len(usable),
        tokens=len(known),
        accepted=float(known.accepted.mean()),
        cross_entropy=fitted.cross_entropy,
        constant=fitted.constant,
        divergence=fitted.divergence,
        epoch=fitted.epoch,
        h=round(1 - survival, 4),
        time_per_token=time,
        seconds=perf_counter() - begun,
    )
    _write(run, engine, fitted, report)
    return report


def _chains(
    weights: dict[str, Tensor], held: Sequence[Drafted], reject_weight: float
) -> Iterator[tuple[list[float], list[float]]]:
    """A draft from each place of a held-out text on: the survival that is known after each token, and its label.

    The last drafted token is not scored yet when the rule decides, so its value is the product of those before.
    """
    for drafted in held:
        says = predicted(weights, drafted.hidden, reject_weight).tolist()
        labels = drafted.accepted.tolist()
        for first in range(len(labels)):
            values, survival = [], 1.0
            for place in range(first, min(first + DEPTH, len(labels))):
                values.append(survival)
                survival *= says[place]
            yield values, labels[first : first + DEPTH]


def _write(run: HeadRun, engine: Engine, fitted: Fitted, report: HeadReport) -> None:
    sampling = {"temperature": run.sampling.temperature, "top_p": run.sampling.top_p, "top_k": run.sampling.top_k}
    trained = {**asdict(report), "recipe": asdict(run.recipe), "sampling": sampling, "cost": run.cost}
    head = ClassifierHeadFile(engine.pair, fitted.weights, report.h, run.recipe.reject_weight, trained)
    write_classifier_head(ACCEPTANCE, head, run.output)
