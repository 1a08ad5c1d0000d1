"""Stop where one more token no longer pays: the expected tokens it adds against the time it takes.

A round with L drafted tokens emits E(L) = 1 + S_1 + ... + S_L tokens, S_i the probability that the first i are all accepted,
and takes T(L) = L d + V(L + 1). An answer has a given number of tokens, so the least time is the greatest ratio of expected
tokens to expected time, and that is found by maximising E - lambda T round by round, where lambda is the best ratio itself
(renewal reward; Dinkelbach's method). So the rule goes on while some number m of further tokens has

    S_L (a_1 + a_1 a_2 + ... + a_1 ... a_m)  >  lambda (m d + V(L + 1 + m) - V(L + 1))

With constant V, d and acceptance a, m = 1 decides, and it stops when P(some rejected) = 1 - S_L >= 1 - lambda d / a. That is
the theorem of SpecDec++ (arXiv 2405.19715), threshold (c2 + D) / (c1 + c2 + D), with c1 = d and c1 + c2 + D = a / lambda:
what it leaves as an unknown constant D is here the price of time. Plain decoding's price and a = 1 give D = 0.

S and a are counted online (estimate.py), d and V measured or given (pace.py). lambda is the rate that the best fixed length
promises by these counts, for the running request's ease: it moves less than the rate reached, which is luck in part. Lengths
never tried are judged by shorter ones, with some optimism, so that they are tried if they might pay.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from math import prod
from typing import final

from ..core import Round, Step
from .base import POLICIES, LengthPolicy, PolicyFactory, Readings, confidence, has_row
from .estimate import Acceptance, confidence_bin
from .pace import GivenPace, MeasuredPace, Pace

FADE = 0.95  # of what drafts are like in general, a round
EASE_FADE, IDLE_FADE = 0.7, 0.9
EASE_EDGE = 0.5
Reading = tuple[bool, int]


def pays(
    survives: float, ahead: Iterable[float], price: float, step: float, verify: Callable[[int], float], length: int
) -> bool:
    """Whether some number of further tokens gains more than it costs.

    survives: the probability that all `length` tokens so far are accepted; ahead: the further ones' acceptances, each given
    those before it; price: tokens per time; verify: time by rows.
    """
    gain, base = 0.0, verify(length + 1)
    for more, acceptance in enumerate(ahead, 1):
        survives *= acceptance
        gain += survives
        if gain > price * (more * step + verify(length + more + 1) - base):
            return True
    return False


@final
class Knowledge:
    """What requests share: acceptance counts, costs, and what drafts are like."""

    def __init__(self, pace: Pace) -> None:
        self.acceptance = Acceptance()
        self.pace = pace
        self.ease = 0.5  # share of the verified tokens that were accepted
        self.with_row = 0.5  # share of the drafts whose steps have a row


@final
class CostAware(LengthPolicy):
    def __init__(self, knowledge: Knowledge, optimism: float, max_steps: int, retry: int) -> None:
        self._knowledge = knowledge
        self._optimism = optimism
        self._max_steps = max_steps
        self._retry = retry
        self._readings = Readings(_read)
        self._ease: float | None = None
        self._idle = 0
        self._price: float | None = None

    def should_stop(self, steps: Sequence[Step]) -> bool:
        if len(steps) >= self._max_steps:
            return True
        if not steps and self._idle >= self._retry:
            return False
        readings, counts = self._readings.of(steps), self._knowledge.acceptance
        survives = prod(counts.of(self._of_token(i, reading)) for i, reading in enumerate(readings))
        ahead = (counts.of(self._ahead(i, readings), self._optimism) for i in range(len(steps), self._max_steps))
        if self._price is None:
            self._price = self._rate()
        step = self._step(readings[-1][0] if readings else self._knowledge.with_row)
        return not pays(survives, ahead, self._price, step, self._knowledge.pace.verify, len(steps))

    def observe(self, steps: Sequence[Step], round: Round) -> None:
        readings, accepted = list(self._readings.of(steps)), len(round.verdict.path)
        counts, pace = self._knowledge.acceptance, self._knowledge.pace
        for i, reading in enumerate(readings[: accepted + 1]):
            counts.learn([*self._of_token(i, reading), *self._of_place(i, readings[:i])], i < accepted)
        with_row = bool(readings) and readings[-1][0]
        pace.learn(with_row, len(steps), round)
        self._idle = 0 if steps else self._idle + 1
        if not steps and self._ease is not None:
            self._ease += (1 - IDLE_FADE) * (self._knowledge.ease - self._ease)
        if steps:
            self._knowledge.with_row += (1 - FADE) * (with_row - self._knowledge.with_row)
            share = accepted / min(accepted + 1, len(steps))
            self._ease = share if self._ease is None else EASE_FADE * self._ease + (1 - EASE_FADE) * share
            self._knowledge.ease += (1 - FADE) * (share - self._knowledge.ease)
        self._readings.clear()
        self._price = None

    def _step(self, with_row: float) -> float:
        """The time of a draft step that has a row with this probability."""
        pace = self._knowledge.pace
        return with_row * pace.step(True) + (1 - with_row) * pace.step(False)

    def _rate(self) -> float:
        """Tokens per time at the best fixed length, by the acceptance counted so far and this request's ease."""
        verify, step = self._knowledge.pace.verify, self._step(self._knowledge.with_row)
        survives = tokens = 1.0
        rate = 1 / verify(1)
        for length in range(1, self._max_steps + 1):
            survives *= self._knowledge.acceptance.of(self._ahead(length - 1, ()))
            tokens += survives
            rate = max(rate, tokens / (length * step + verify(length + 1)))
        return rate

    def _of_token(self, place: int, reading: Reading) -> list[Hashable]:
        """Keys of a drafted token, from coarse to fine."""
        ease = self._ease_bin()
        return [("token", *reading), ("token", *reading, ease), ("token", *reading, ease, place)]

    def _ahead(self, place: int, readings: Sequence[Reading]) -> list[Hashable]:
        """Keys of a token yet to be drafted, behind those of which there are readings."""
        ease = self._ease_bin()
        if not readings:
            return [("draft",), ("draft", place), ("draft", place, ease)]
        with_row, last = readings[-1]
        if place == len(readings):
            return [("next", with_row, last), ("next", with_row, last, ease), ("next", with_row, last, ease, place)]
        return [("later", with_row), ("later", with_row, place), ("later", with_row, place, ease)]

    def _of_place(self, place: int, before: Sequence[Reading]) -> list[Hashable]:
        """All keys under which the token at a place could have been asked for ahead."""
        keys = self._ahead(place, ())
        for known in range(1, len(before) + 1):
            keys += [key for key in self._ahead(place, before[:known]) if key not in keys]
        return keys

    def _ease_bin(self) -> int:
        """How well this request's drafts have done lately; 0 before the first."""
        return 0 if self._ease is None else 1 + (self._ease >= EASE_EDGE)


def _read(step: Step) -> Reading:
    return has_row(step), confidence_bin(confidence(step))


@POLICIES("cost", source="forerun; the theorem of Huang et al., SpecDec++, arXiv 2405.19715, with the costs known")
def build(
    *,
    max_steps: int = 20,
    optimism: float = 0.35,
    retry: int = 8,
    draft_ratio: float | None = None,
    row_ratio: float | None = None,
    carry: bool = True,
) -> PolicyFactory:
    """Draft while the tokens that one more step is expected to gain are worth the time that it takes.

    Costs are measured while decoding, unless given: draft_ratio is a draft step's, row_ratio that of each further row of a
    verification, both in plain forwards. retry: after so many rounds without a draft one is tried again. carry keeps what
    was learnt from one request to the next.
    """
    if max_steps < 1 or retry < 1:
        raise ValueError(f"max_steps and retry must be at least 1, got {max_steps} and {retry}")
    if not 0 <= optimism < float("inf"):
        raise ValueError(f"optimism must be at least 0 and finite, got {optimism}")
    ratios = {"draft_ratio": draft_ratio, "row_ratio": row_ratio}
    for name, value in ratios.items():
        if value is not None and not 0 <= value < float("inf"):
            raise ValueError(f"{name} must be at least 0 and finite, got {value}")
    if row_ratio is not None and draft_ratio is None:
        raise ValueError(f"row_ratio {row_ratio} needs draft_ratio too: all costs are given or all are measured")

    def pace() -> Pace:
        if draft_ratio is None:
            return MeasuredPace()
        return GivenPace(draft_ratio, lambda rows: 1 + (row_ratio or 0.0) * (rows - 1))

    return with_pace(pace, max_steps=max_steps, optimism=optimism, retry=retry, carry=carry)


def with_pace(
    pace: Callable[[], Pace], *, max_steps: int = 20, optimism: float = 0.35, retry: int = 8, carry: bool = True
) -> PolicyFactory:
    """The policy on costs that a caller knows, such as pace.given of a measured curve."""
    shared = Knowledge(pace())
    return lambda: CostAware(shared if carry else Knowledge(pace()), optimism, max_steps, retry)
