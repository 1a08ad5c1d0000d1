"""What answers the prompts of a benchmark: a method of forerun, or another engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, final

from ..engine.engine import Engine
from ..engine.request import RequestOptions
from ..engine.stats import Stats
from ..errors import ForerunError
from .workers.protocol import Stopwatch, forget_peak, peak_mb


class PeerFailed(ForerunError):
    """Another engine that can't be started, failed or stopped answering; the benchmark goes on without it."""


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """One prompt, answered once. Decoded tokens are those that came after the first, in decode_seconds.

    peak_mb: the peak memory of the answering process; stats: forerun's own, None for other engines.
    """

    ids: tuple[int, ...]
    first_tokens: int
    first_seconds: float
    decode_seconds: float
    peak_mb: float
    stats: Stats | None = None

    @property
    def decoded(self) -> int:
        return len(self.ids) - self.first_tokens

    @property
    def tokens_per_second(self) -> float | None:
        """None for an answer that ended with its first token."""
        return self.decoded / self.decode_seconds if self.decoded and self.decode_seconds else None


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Prompts that were answered together, and the seconds of all of them, reading included."""

    ids: tuple[tuple[int, ...], ...]
    seconds: float

    @property
    def tokens(self) -> int:
        return sum(map(len, self.ids))


class Backend(ABC):
    """Answers prompts greedily. baseline is the name of the backend that decodes plainly with the same weights.

    several: whether it can answer prompts at once.
    """

    name: str
    baseline: str
    about: Mapping[str, Any]
    several: bool = False

    @abstractmethod
    def answer(self, ids: Sequence[int], max_new_tokens: int) -> Sample:
        """Answer one prompt, from its first token, with nothing kept from the prompt before. Raises PeerFailed."""

    def answer_all(self, prompts: Sequence[Sequence[int]], at_once: int, max_new_tokens: int) -> Batch:
        """Answer prompts, so many of them in flight. Raises PeerFailed."""
        raise PeerFailed(f"{self.name} answers one prompt at a time")

    def close(self) -> None:  # noqa: B027
        """Release what the backend holds; most hold nothing."""


@final
class ForerunBackend(Backend):
    """A method of forerun, in this process. All of them share one loaded model.

    generation_config: whether the checkpoint's acts, as in RequestOptions.
    """

    several = True

    def __init__(
        self, name: str, baseline: str, engine: Engine, about: Mapping[str, Any], generation_config: bool = True
    ) -> None:
        self.name = name
        self.baseline = baseline
        self.about = about
        self._engine = engine
        self._options: RequestOptions = {"seed": 0, "remember": False, "generation_config": generation_config}

    def answer(self, ids: Sequence[int], max_new_tokens: int) -> Sample:
        options: RequestOptions = {**self._options, "max_new_tokens": max_new_tokens}
        self._engine.forget()
        forget_peak()
        watch = Stopwatch(max_new_tokens, self._engine.eos)
        stats: Stats | None = None
        for piece in self._engine.stream(list(ids), **options):
            watch.emit(piece.ids)
            if piece.result is not None:
                stats = piece.result.stats
        return sample_of({**watch.answer(), "peak_mb": peak_mb()}, stats)

    def answer_all(self, prompts: Sequence[Sequence[int]], at_once: int, max_new_tokens: int) -> Batch:
        options: RequestOptions = {**self._options, "max_new_tokens": max_new_tokens}
        self._engine.forget()
        begun = perf_counter()
        found = dict(self._engine.each([(list(ids), options) for ids in prompts], max_batch=at_once))
        seconds = perf_counter() - begun
        return Batch(tuple(found[number].ids for number in range(len(prompts))), seconds)


def sample_of(answer: Mapping[str, Any], stats: Stats | None = None) -> Sample:
    """A Sample from what a Stopwatch recorded."""
    return Sample(
        tuple(answer["ids"]),
        int(answer["first_tokens"]),
        float(answer["first_seconds"]),
        float(answer["decode_seconds"]),
        float(answer["peak_mb"]),
        stats,
    )
