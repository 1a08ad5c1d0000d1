"""Switches speculation off where it makes decoding slower, and on again when a probe shows that it pays.

An account is kept in plain rounds. A round with a draft adds the tokens that it emitted, and subtracts its time in plain
rounds. So drafts that don't pay lower the account, and good ones raise it up to a limit. Every token also adds the small
share of time that may be lost. When the account is empty, the policy asks for no drafts, so the loop decodes plainly. After
some rounds (twice as many after each failure that was dear), or where a text begins, and once the account covers the
expected loss of a probe, a few rounds are drafted again. If they gain, speculation continues. So whatever the drafter does,
the time lost against plain decoding is at most that share, and a few rounds.

The time of a plain round is measured at the start, while off, and occasionally while on. The account is shared by the
requests of an engine, since a bad drafter is bad for the next request too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from statistics import median
from threading import RLock
from typing import Any, final

from ..core.learned import Learned, Learning, joined, numbers
from ..core.policy import LengthPolicy
from ..core.values import Round, Step
from .base import POLICIES, PolicyFactory
from .costs.pack_costs import PackCosts, draft_seconds
from .wrapping import Wrapping, inner_policy

MEASURED_FIRST, NEWEST = 3, 31  # plain rounds
MEASURE_AGAIN = 128  # drafted rounds
PROBE = 4  # rounds; the first pays for bringing the drafter up to date, so its gain decides nothing
SHORTEST_REST, LONGEST_REST = 16, 1024
LEAST_PRICE, DEAR = 0.25, 0.5  # plain rounds: of a probe at least; lost by one that is not soon repeated
FADE, FADE_OF_GAIN = 0.8, 0.95  # of the usual time of a drafted round; of its gain, in which single rounds say less
INTERRUPTED = (
    4.0  # times the usual time: a single round that took longer was interrupted, which says nothing of its draft
)


@final
class LossAccount(Learned):
    """Gains and losses against plain decoding, and whether to draft."""

    def __init__(self, credit: float, loss: float) -> None:
        self.lock = RLock()  # requests of several threads share it
        self._limit = 2 * credit
        self._loss = loss
        self._credit = credit
        self._plain: deque[float] = deque(maxlen=NEWEST)
        self._packs = PackCosts()
        self._plain_time = 0.0
        self._expected = 0.0  # gain of a drafted round
        self._usual, self._interrupted = 1.0, False  # time of a drafted round; whether the last one was interrupted
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
        price = min(max(LEAST_PRICE, -PROBE * self._expected), self._limit)
        return self._rested < self._rest or self._credit < price

    def begin(self) -> None:
        """A text begins, which may suit drafts better than the last one did."""
        if self._rested is not None:
            self._rested = max(self._rested, self._rest)

    def learn(self, round: Round) -> None:
        if round.timing.verify <= 0 or not self._packs.learn(round):  # a round that nobody timed
            return
        seconds = round.timing.draft + round.timing.verify
        if round.held_back:
            if not self._packs.shared:
                self._measure(seconds)
            self._learn_held_back(len(round.tokens))
        elif self._packs.shared:
            seconds = draft_seconds(round) + self._packs.verify(len(round.draft) + 1)
            self.judge(len(round.tokens), self._counted(seconds / self._packs.verify(1)))
        elif self._plain:
            self.judge(len(round.tokens), self._counted(seconds / self._plain_time))

    def _measure(self, seconds: float) -> None:
        """The mean, as for drafted rounds: on a busy machine it lies above the median. Interrupted rounds count as there."""
        self._plain.append(seconds)
        longest = INTERRUPTED * median(self._plain)
        self._plain_time = sum(min(one, longest) for one in self._plain) / len(self._plain)

    def _counted(self, plain_rounds: float) -> float:
        """The time that counts, as it is where rounds take so long one after the other."""
        longest = INTERRUPTED * self._usual
        counted = plain_rounds if self._interrupted else min(plain_rounds, longest)
        self._interrupted = plain_rounds > longest
        self._usual = FADE * self._usual + (1 - FADE) * counted
        return counted

    def learn_plain(self, tokens: float, seconds: float) -> None:
        """Of a round that was held back."""
        self._measure(seconds)
        self._learn_held_back(tokens)

    def _learn_held_back(self, tokens: float) -> None:
        self._drafted = 0
        self._put(self._loss * tokens)
        if self._rested is not None and self._probe is None:
            self._rested += 1

    def judge(self, tokens: float, plain_rounds: float) -> None:
        """Of a round that wasn't: what it emitted, and the plain rounds that it took as long as."""
        gain = tokens - plain_rounds
        self._drafted += 1
        self._put(gain + self._loss * tokens)
        self._expected = FADE_OF_GAIN * self._expected + (1 - FADE_OF_GAIN) * gain
        if self._rested is not None:
            self._probe = [*(self._probe or []), gain]
            if len(self._probe) == PROBE and sum(self._probe[1:]) > 0 and self._credit > 0:
                self._rested, self._probe, self._rest = None, None, SHORTEST_REST
            elif len(self._probe) == PROBE or self._credit <= 0:
                if -sum(self._probe) > DEAR:
                    self._rest = min(2 * self._rest, LONGEST_REST)
                self._rested, self._probe = 0, None
        elif self._credit <= 0:
            self._rested = 0

    def as_data(self) -> dict[str, Any]:
        with self.lock:
            rested = -1.0 if self._rested is None else float(self._rested)
            return {"account": [self._credit, self._expected, float(self._rest), rested]}

    def recall(self, data: Any) -> None:
        """The time of a plain round is measured anew, since the machine may be busier."""
        if not isinstance(data, dict):
            raise ValueError(f"no account was kept in {str(data)[:40]}")
        credit, expected, rest, rested = numbers(data.get("account"), 4, -1e6)
        with self.lock:
            self._credit, self._expected = min(credit, self._limit), expected
            self._rest = min(max(int(rest), SHORTEST_REST), LONGEST_REST)
            self._rested = int(rested) if rested >= 0 else None

    def _put(self, amount: float) -> None:
        self._credit = min(self._credit + amount, self._limit)


@final
class Governor(Wrapping):
    def __init__(self, inner: LengthPolicy, account: LossAccount) -> None:
        super().__init__(inner)
        self._account = account

    def begin(self, unread: int, room: int, copies: bool = False) -> None:
        with self._account.lock:
            self._account.begin()
        super().begin(unread, room, copies)

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
    *, inner: str = "cost", credit: float = 8.0, loss: float = 0.01, carry: bool = True, **options: Any
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
    if not carry:
        return lambda: Governor(make(), LossAccount(credit, loss))
    shared = LossAccount(credit, loss)
    return Learning(lambda: Governor(make(), shared), {"account": shared, **joined(inner=make)})
