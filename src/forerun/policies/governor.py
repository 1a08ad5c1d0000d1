"""Switches speculation off where it makes decoding slower, and on again when a probe shows that it pays.

An account is kept in plain rounds. A round with a draft adds the tokens that it emitted, and subtracts its time in plain
rounds. So drafts that don't pay lower the account, and good ones raise it up to a limit. Every token also adds the small
share of time that may be lost. When the account is empty, the policy asks for no drafts, so the loop decodes plainly. After
some rounds (twice as many after each failure), and once the account covers the expected loss of a probe, a few rounds are
drafted again. If they gain, speculation continues. So whatever the drafter does, the time lost against plain decoding is at
most that share, and a few rounds.

The time of a plain round is measured at the start, while off, and occasionally while on. The account is shared by the
requests of an engine, since a bad drafter is bad for the next request too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from statistics import median
from threading import RLock
from typing import Any, final

from ..core.policy import LengthPolicy
from ..core.values import Round, Step
from .base import POLICIES, PolicyFactory
from .pack_costs import PackCosts, draft_seconds
from .wrapping import Wrapping, inner_policy

MEASURED_FIRST, NEWEST = 3, 15  # plain rounds
MEASURE_AGAIN = 128  # drafted rounds
PROBE = 4  # rounds; the first pays for bringing the drafter up to date, so its gain decides nothing
SHORTEST_REST, LONGEST_REST = 16, 1024
FADE = 0.8


@final
class LossAccount:
    """Gains and losses against plain decoding, and whether to draft."""

    def __init__(self, credit: float, loss: float) -> None:
        self.lock = RLock()  # requests of several threads share it
        self._limit = 2 * credit
        self._loss = loss
        self._credit = credit
        self._plain: deque[float] = deque(maxlen=NEWEST)
        self._packs = PackCosts()
        self._expected = 0.0  # gain of a drafted round
        self._drafted = 0  # rounds since the last plain one
        self._rest = SHORTEST_REST
        self._rested: int | None = None  # plain rounds since drafting was switched off; None while it is on
        self._probe: list[float] | None = None

    @property
    def holds_back(self) -> bool:
        """Whether the next round should be plain."""
        known = self._packs.known if self._packs.shared else len(self._plain)
        if known < MEASURED_FIRST or self._drafted >= MEASURE_AGAIN:
            return True
        if self._rested is None or self._probe is not None:
            return False
        price = min(max(1.0, -PROBE * self._expected), self._limit)
        return self._rested < self._rest or self._credit < price

    def learn(self, round: Round) -> None:
        if round.timing.verify <= 0 or not self._packs.learn(round):  # a round that nobody timed
            return
        seconds = round.timing.draft + round.timing.verify
        if round.held_back:
            if not self._packs.shared:
                self._plain.append(seconds)
            self._drafted = 0
            self._put(self._loss * len(round.tokens))
            if self._rested is not None and self._probe is None:
                self._rested += 1
        elif self._packs.shared:
            seconds = draft_seconds(round) + self._packs.verify(len(round.draft) + 1)
            self._judge(len(round.tokens), seconds / self._packs.verify(1))
        elif self._plain:
            self._judge(len(round.tokens), seconds / median(self._plain))

    def _judge(self, tokens: int, plain_rounds: float) -> None:
        gain = tokens - plain_rounds
        self._drafted += 1
        self._put(gain + self._loss * tokens)
        self._expected = FADE * self._expected + (1 - FADE) * gain
        if self._rested is not None:
            self._probe = [*(self._probe or []), gain]
            if len(self._probe) == PROBE and sum(self._probe[1:]) > 0 and self._credit > 0:
                self._rested, self._probe, self._rest = None, None, SHORTEST_REST
            elif len(self._probe) == PROBE or self._credit <= 0:
                self._rested, self._probe, self._rest = 0, None, min(2 * self._rest, LONGEST_REST)
        elif self._credit <= 0:
            self._rested = 0

    def _put(self, amount: float) -> None:
        self._credit = min(self._credit + amount, self._limit)


@final
class Governor(Wrapping):
    def __init__(self, inner: LengthPolicy, account: LossAccount) -> None:
        super().__init__(inner)
        self._account = account

    def should_stop(self, steps: Sequence[Step]) -> bool:
        return (not steps and self._holds_back()) or self._inner.should_stop(steps)

    def observe(self, steps: Sequence[Step], round: Round) -> None:
        with self._account.lock:
            self._account.learn(round)
        super().observe(steps, round)

    def _holds_back(self) -> bool:
        with self._account.lock:
            return self._account.holds_back


@POLICIES("governor", source="forerun")
def build(
    *, inner: str = "cost", credit: float = 4.0, loss: float = 0.01, carry: bool = True, **options: Any
) -> PolicyFactory:
    """Another policy (inner, with its own options), switched off while plain decoding is faster.

    credit: the time, in plain rounds, that may be lost before anything is gained. loss: the share of the time that probing
    may cost. carry shares the account between requests.
    """
    if not 0 < credit < float("inf"):
        raise ValueError(f"credit must be above 0 and finite, got {credit}")
    if not 0 < loss < 1:
        raise ValueError(f"loss must be in (0, 1), got {loss}")
    make = inner_policy("governor", inner, options)
    shared = LossAccount(credit, loss)
    return lambda: Governor(make(), shared if carry else LossAccount(credit, loss))
