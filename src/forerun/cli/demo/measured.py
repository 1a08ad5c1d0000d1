"""What forerun demo measures: two engines against plain decoding on one kind of prompts, and transformers' own generate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

from ...engine.request import RequestOptions
from ..method import Method

if TYPE_CHECKING:
    from ...bench.comparison import Comparison
    from ...engine.engine import Engine
    from ...engine.prompts.questions import Question
    from ...models.loading.load import Module

# the target drafts with its own matrices in 4 bits, on its own keys and values
CARVED = Method("self", "fixed", {"weights": "int4"}, {"k": 5})
FEW = 24  # tokens of an answer of transformers, which takes its time


@dataclass(frozen=True, slots=True)
class Contender:
    """A method, in words, on an engine; weights: the form of the target's."""

    name: str
    weights: str
    engine: Engine


@dataclass(frozen=True, slots=True)
class Written:
    """What transformers wrote for some questions: ids of each answer, decoded tokens and the seconds after first tokens.

    parted: the first question and token at which forerun's plain text of the same weights is another, and by how much
    log-probability that one preferred its own; None where all are equal.
    """

    answers: tuple[tuple[int, ...], ...]
    decoded: int
    seconds: float
    parted: tuple[int, int, float] | None

    @property
    def rate(self) -> float:
        return self.decoded / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """One kind of prompts, by name and in words: a comparison a contender, and what transformers did with few tokens."""

    name: str
    described: str
    compared: tuple[tuple[Contender, Comparison], ...]
    transformers: Written

    def plain_rate(self, weights: str) -> float:
        found = next(one for contender, one in self.compared if contender.weights == weights)
        return median(found.plain.rates)

    def as_dict(self) -> dict[str, Any]:
        methods = [
            {"method": contender.name, "weights": contender.weights, **one.as_dict()}
            for contender, one in self.compared
        ]
        parted = self.transformers.parted
        return {
            "kind": self.name,
            "methods": methods,
            "transformers": {
                "dtype": "bfloat16",
                "tokens_per_second": self.transformers.rate,
                "tokens": self.transformers.decoded,
                "equal": parted is None,
                "parted": None if parted is None else dict(zip(("answer", "token", "margin"), parted, strict=True)),
            },
        }


def measured(
    name: str,
    described: str,
    contenders: Sequence[Contender],
    module: Module,
    questions: Sequence[Question],
    request: RequestOptions,
    repeats: int,
    seconds: float,
    tick: Callable[[], None],
) -> Kind:
    """Each contender and plain decoding of its weights by turns, then transformers, whose weights the last one shares."""
    from ...bench.compare import compare

    compared = tuple(
        (one, compare([one.engine], questions, request, repeats=repeats, seconds=seconds, tick=tick)[0])
        for one in contenders
    )
    last, found = compared[-1]
    plain = [ids for run in found.plain.repeats[0] for ids in run.ids]
    few = min(FEW, request.get("max_new_tokens") or FEW)
    by_transformers = _by_transformers(module, questions, last.engine, plain, few, seconds / len(questions))
    return Kind(name, described, compared, by_transformers)


def _by_transformers(
    module: Module,
    questions: Sequence[Question],
    engine: Engine,
    plain: Sequence[tuple[int, ...]],
    few: int,
    seconds: float,
) -> Written:
    """transformers' greedy answers, on as many threads, of at most so many tokens and so long.

    plain: forerun's, of one turn each, by this engine.
    """
    from ...bench.difference import shared_length
    from ...engine.prompts.questions import has_chat_template

    chat = has_chat_template(module.tokenizer)
    prompts = [question.ids((), chat, module.tokenizer) for question in questions]
    answer(module, prompts[0], 2, seconds)
    written = [answer(module, prompt, few, seconds) for prompt in prompts]
    parted = None
    for number, (prompt, (ids, _), own) in enumerate(zip(prompts, written, plain, strict=True)):
        at = shared_length(ids, own[: len(ids)])
        if parted is None and at < len(ids):
            parted = number, at, _margin(engine, prompt, at, ids[at], own)
    decoded = sum(len(ids) - 1 for ids, _ in written)
    return Written(tuple(ids for ids, _ in written), decoded, sum(spent for _, spent in written), parted)


def answer(module: Module, prompt: Sequence[int], count: int, seconds: float) -> tuple[tuple[int, ...], float]:
    """The ids that transformers' generate writes, fewer where time runs out, and the seconds from the first to the last."""
    import torch

    from ...bench.workers.hf_generate import EmitStreamer
    from ...models.files.quiet import quiet

    times: list[float] = []
    ids: list[int] = []

    def emit(tokens: list[int]) -> None:
        times.append(perf_counter())
        ids.extend(tokens)

    given = torch.tensor([list(prompt)])
    ends = sorted(module.eos)
    with torch.inference_mode(), quiet():
        module.model.generate(
            given,
            attention_mask=torch.ones_like(given),
            max_new_tokens=count,
            max_time=seconds,
            do_sample=False,
            eos_token_id=ends or None,
            pad_token_id=(ends or [0])[0],
            streamer=EmitStreamer(emit),
        )
    return tuple(ids), times[-1] - times[0]


def _margin(engine: Engine, prompt: Sequence[int], at: int, theirs: int, own: Sequence[int]) -> float:
    """By how much forerun's plain decoding preferred its token there."""
    from ...bench.difference import CANDIDATES, preferred_by

    if at >= len(own):
        return float("inf")
    plain = engine.generate(
        list(prompt), max_new_tokens=at + 1, speculate=False, logprobs=CANDIDATES, processed_logprobs=True
    )
    assert plain.logprobs is not None
    return preferred_by(plain.logprobs, at, own[at], theirs)
