"""Stop where one more token no longer pays: the expected tokens it adds against the time it takes.

A round with L drafted tokens emits E(L) = 1 + S_1 + ... + S_L tokens, S_i the probability that the first i are all accepted,
and takes T(L) = L d + V(L + 1). An answer has a given number of tokens, so the least time is the greatest ratio of expected
tokens to expected time, and that is found by maximising E - lambda T round by round, where lambda is the best ratio itself
(renewal reward; Dinkelbach's method). So the rule goes on while some number m of further tokens has

    S_L (a_1 + a_1 a_2 + ... + a_1 ... a_m)  >  lambda (m d + V(L + 1 + m) - V(L + 1))

With constant V, d and acceptance a, m = 1 decides, and it stops when P(some rejected) = 1 - S_L >= 1 - lambda d / a. That is
the theorem of SpecDec++ (arXiv 2405.19715), threshold (c2 + D) / (c1 + c2 + D), with c1 = d and c1 + c2 + D = a / lambda:
what it leaves as an unknown constant D is here the price of time. Plain decoding's price and a = 1 give D = 0.

S and a are learnt online (acceptance_forecast.py); d and V are measured or given (step_costs.py). lambda is the expected
ratio E / T of the rule's own newest rounds, never below plain decoding's. This is Dinkelbach's iteration, one step per
round. It uses expected tokens, since the emitted ones depend partly on chance. Where the draft's own ratio is greater, that
is the price: texts have easy stretches, whose tokens come fast in the next round, too, so one more of them now saves less.

The rule learns only from tokens that it drafts, so it also tries tokens that might pay. The expected loss is taken from a
budget, to which every emitted token adds a small share. So in total no more than that share is lost.

A drafter that has to read the prompt starts if this pays (prompt_reading.py), or if a budget of the same kind covers its
loss.

A token that was chosen is seen before its row is paid for. It is left out where that row isn't worth it:

    S_L a (1 + a_1 + a_1 a_2 + ...)  <=  lambda (m d + V(L + 2 + m) - V(L + 1))    for every m

with a of the token itself. So a drafter that copies is always asked. Where it tells how likely its tokens are, its draft
goes on while one that is likely by a, and will be told from others, pays: a (S_L - lambda (V(L + 2) - V(L + 1))) > lambda d.
The text tells what a token that was left out was worth, so nothing is tried to learn it. Of several drafters, each has
its own regressions and costs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Sequence as Series
from itertools import chain, repeat
from typing import final

from ..core.learned import Learning
from ..core.policy import LengthPolicy
from ..core.values import ROOT, Round, Step
from .acceptance_forecast import UNNAMED, AcceptanceForecast, Kind, Reading, Source, read
from .base import POLICIES, PolicyFactory, Readings
from .cost_state import MOST_SPARE, Rate, SharedState
from .costs.step_costs import GivenStepCosts, MeasuredStepCosts, StepCosts
from .logistic_regression import Odds
from .prompt_reading import best_rate, gained

SHARE = 0.004  # tokens that may be lost by trying, of each emitted one
SHORT = 0.92  # kept of the newest rounds' tokens and time, a round
PLAIN = 1.0, 1.0  # tokens and time of a plain round
MOST_PLAIN = 16  # rounds without a draft that are learnt from together
LOOK_AGAIN = 4  # rounds; as many as requests share a forward, if these are more: looking takes time that all wait for
WORTH = 20.0  # plain rounds that the price of all requests counts in a request's own
FAR = 6  # tokens that are looked ahead after a copied one: beyond, nothing that didn't pay yet begins to


def worth(
    survives: float,
    ahead: Iterable[float],
    price: float,
    step: float,
    verify: Callable[[int], float],
    length: int,
    drafted: int = 0,
) -> float:
    """The expected gain of drafting some number of further tokens, less the price of their time: the maximum over that
    number, or the first value above 0, since then only the sign matters.

    survives: the probability that all `length` tokens so far are accepted; ahead: the further ones' acceptances, each given
    those before it; price: tokens per time; verify: time by rows; drafted: of the further ones, how many are there already
    and take a row alone. Minus infinity if ahead is empty.
    """
    gain, base, most = 0.0, verify(length + 1), float("-inf")
    for more, acceptance in enumerate(ahead, 1):
        survives *= acceptance
        gain += survives
        steps = max(more - drafted, 0)
        most = max(most, gain - price * (steps * step + verify(length + more + 1) - base))
        # no later token is likelier, and none is cheaper than its draft step
        if most > 0 or survives <= price * step:
            break
    return most


@final
class CostAware(LengthPolicy):
    def __init__(self, shared: SharedState, optimism: float, max_steps: int, retry: int) -> None:
        self._shared = shared
        self._optimism, self._max_steps, self._retry = optimism, max_steps, retry
        self._forecast = AcceptanceForecast(shared.beliefs)
        self._rate = Rate(SHORT)
        self._look_again = LOOK_AGAIN
        self._refused = False  # whether the last draft was not begun; little is learnt without one
        self._idle: int | None = None  # rounds since the last draft, None before the first
        self._copies = False
        self._left: Step | None = None  # of this round
        self._round = 0
        self._drafted_in: dict[str, int] = {}  # the round that each drafter drafted in last
        self._readings = Readings(read)
        self._plain: list[float] = []  # times of newest rounds without a draft, of which the rest doesn't know yet
        self._survival = [1.0]  # of a draft's first tokens, and their acceptances
        self._likely: list[float] = []
        self._owed: dict[int, float] = {}
        self._price: float | None = None
        self._unread = self._room = self._emitted = 0
        self._expected = self._loss = 0.0

    def begin(self, unread: int, room: int, copies: bool = False) -> None:
        self._unread, self._room, self._copies = unread, room, copies
        with self._shared.lock:
            self._expected = self._shared.lengths.expected(room)

    def should_stop(self, steps: Series[Step]) -> bool:
        if len(steps) >= self._max_steps:
            return True
        if not steps:
            # copying takes no time to speak of, unless many requests wait for it
            if self._copies and self._look_again == LOOK_AGAIN:
                return False
            if (self._refused or self._copies) and (self._idle or 0) % self._look_again:
                return True
        readings = self._readings.of(steps)
        with self._shared.lock:
            self._settle()
            stops = self._pays_no_more(readings)
        self._refused = stops and not steps
        return stops

    def leaves_out(self, steps: Series[Step]) -> bool:
        readings = self._readings.of(steps)
        with self._shared.lock:
            self._settle()
            if self._is_worth_a_row(readings):
                return False
        self._left = steps[-1]
        return True

    def _is_worth_a_row(self, readings: Series[Reading]) -> bool:
        last, length, costs = readings[-1], len(readings) - 1, self._shared.costs
        survives, price = self._survives(readings), self._tokens_per_time(length, last.source)
        if survives > price * (costs.verify(length + 2) - costs.verify(length + 1)):
            return True
        before, likely = self._survival[length], self._likely[length]
        # a copied token's own chance stands for those after it
        others = self._forecast.ahead(readings)[1].probability if last.source.kind is Kind.ROW else likely
        ahead = chain([likely], repeat(others, min(self._max_steps - length - 1, FAR)))
        return worth(before, ahead, price, self._step_of(last.source), costs.verify, length, drafted=1) > 0

    def _tokens_per_time(self, length: int = 0, source: Source | None = None) -> float:
        """The price of time, after so many tokens of a draft from this source."""
        if self._price is None:
            self._price = self._ratio() / self._shared.costs.verify(1)
        if source is None or not length:
            return self._price
        time = length * self._step_of(source) + self._shared.costs.verify(length + 1)
        return max(self._price, sum(self._survival[: length + 1]) / time)

    def _pays_no_more(self, readings: Series[Reading]) -> bool:
        length, costs = len(readings), self._shared.costs
        last = readings[-1].source if readings else None
        survives, price = self._survives(readings), self._tokens_per_time(length, last)
        if last is not None and last.kind is Kind.COUNTED:
            certain = repeat(1.0, min(self._max_steps - length, FAR))
            sure = worth(survives, certain, price, 0.0, costs.verify, length)
            return self._likely[-1] * sure <= price * self._step_of(last)
        following, later = self._forecast.ahead(readings)
        due = not readings and (self._idle or 0) >= self._retry
        if not readings and self._unread and not self._may_read(following, later, due):
            return True
        step = self._step() if last is None else self._step_of(last)

        def promised(first: float, others: float) -> float:
            ahead = chain([first], repeat(others, self._max_steps - length - 1))
            return worth(survives, ahead, price, step, costs.verify, length)

        loss = -promised(following.probability, later.probability)
        if loss < 0:
            return False
        if not due and promised(following.optimistic(self._optimism), later.optimistic(self._optimism)) <= 0:
            return True
        self._owed[length] = min(loss, MOST_SPARE)
        return self._debt(length + 1) > self._shared.spare

    def ahead(self, steps: Series[Step]) -> int:
        return self._shared.usual.after(len(steps), self._max_steps)

    def observe(self, steps: Series[Step], round: Round) -> None:
        pack = round.timing.pack
        self._look_again = LOOK_AGAIN if pack is None else max(LOOK_AGAIN, pack.requests)
        self._round += 1
        if steps or self._left is not None or round.draft.counts.forwards:
            with self._shared.lock:
                self._settle()
                self._learn(steps, round)
            return
        # nothing was drafted: in less time, since there may be nothing to gain it back from
        self._emitted += len(round.tokens)
        self.expected = PLAIN
        self._idle = (self._idle or 0) + 1
        self._owed.clear()
        self._price = None
        if pack is None:
            self._plain.append(round.timing.verify)
            if len(self._plain) < MOST_PLAIN:
                return
        with self._shared.lock:
            self._settle()
            if pack is not None:
                self._shared.costs.learn(False, 0, round)
                self._rest(1)

    def _settle(self) -> None:
        """Learn from the rounds without a draft."""
        if times := self._plain:
            self._shared.costs.learn_plain(times)
            self._rest(len(times))
            times.clear()

    def _rest(self, rounds: int) -> None:
        know = self._shared
        know.spare_for_reading += SHARE * rounds
        know.spare = min(know.spare + SHARE * rounds, MOST_SPARE)
        self._rate.rest(rounds)
        know.rate.rest(rounds)
        self._forecast.rest(rounds)

    def _learn(self, steps: Series[Step], round: Round) -> None:
        left, self._left = self._left, None
        know, accepted = self._shared, len(round.verdict.path)
        readings = list(self._readings.of(steps))
        self._survives(readings)
        drafted = readings if left is None else [*readings, read(left)]
        source = drafted[-1].source if drafted else UNNAMED[0]
        with_row = source.kind is Kind.ROW
        self._emitted += len(round.tokens)
        know.usual.learn(len(steps))
        know.spare_for_reading += SHARE * len(round.tokens)
        if self._unread and (with_row or round.draft.counts.forwards):
            know.costs.learn_reading(self._unread, len(drafted), round)
            know.spare_for_reading -= self._loss
            self._unread = 0
        # the first draft after a pause reads what it missed: not what a step costs
        goes_on = not with_row or self._drafted_in.get(source.drafter) == self._round - 1
        know.costs.learn(with_row, len(drafted) if goes_on else 0, round, source.drafter)
        if drafted:
            self._drafted_in[source.drafter] = self._round
        drafting = len(drafted) * self._step_of(source)
        rounds = (drafting + know.costs.verify(len(steps) + 1)) / know.costs.verify(1)
        tokens = sum(self._survival)
        self.expected = tokens, rounds
        for rate in (self._rate, know.rate):
            rate.add(tokens, rounds)
        right = left is not None and _was_right(left, round)
        self._forecast.learn(drafted, accepted + right, not self._copies)
        know.spare = min(know.spare - self._debt(len(drafted)) + SHARE * (accepted + 1), MOST_SPARE)
        self._idle = 0 if drafted else (self._idle or 0) + 1
        self._readings.clear()
        self._owed.clear()
        self._price = None
        self._survival = [1.0]
        self._likely.clear()

    def end(self) -> None:
        if self._emitted:
            with self._shared.lock:
                self._settle()
                self._shared.lengths.add(self._emitted)

    def _may_read(self, following: Odds, later: Odds, due: bool) -> bool:
        """Whether the drafter may read the prompt: it pays, or the budget covers the expected loss, which is noted."""
        know, costs = self._shared, self._shared.costs
        rest = min(self._expected, self._room - self._emitted)
        with_row, step = know.beliefs.with_row, self._step()
        reading = with_row * costs.read(self._unread) / costs.verify(1)

        def lost(first: float, others: float) -> float:
            rate = best_rate(first, others, step, costs.verify, self._max_steps)
            return reading - gained(rest, rate)

        self._loss = max(lost(following.probability, later.probability), 0.0)
        if not self._loss:
            return True
        hopeful = due or lost(following.optimistic(self._optimism), later.optimistic(self._optimism)) < 0
        return hopeful and self._loss <= know.spare_for_reading

    def _survives(self, readings: Series[Reading]) -> float:
        """The probability that all of these are accepted; the regressions don't change during a draft."""
        known, likely = self._survival, self._likely
        if len(likely) > len(readings):
            del known[len(readings) + 1 :], likely[len(readings) :]
        for reading in readings[len(likely) :]:
            likely.append(self._forecast.acceptance(reading))
            known.append(known[-1] * likely[-1])
        return known[-1]

    def _debt(self, drafted: int) -> float:
        """The expected loss of the tokens that were tried among the first `drafted` ones."""
        return sum([loss for place, loss in self._owed.items() if place < drafted]) if self._owed else 0.0

    def _step_of(self, source: Source) -> float:
        """The time of a drafter's step."""
        return self._shared.costs.step(source.kind is Kind.ROW, source.drafter)

    def _step(self) -> float:
        """The time of a draft step of whichever drafter it will be."""
        shares = [(belief.share, self._step_of(source)) for source, belief in self._shared.beliefs.sources.items()]
        return sum(share * step for share, step in shares)

    def _ratio(self) -> float:
        """Expected tokens per plain round in the newest rounds, of this request and of all."""
        of_all = self._shared.rate
        general = of_all.tokens / of_all.time if of_all.time else 1.0
        return max((self._rate.tokens + WORTH * general) / (self._rate.time + WORTH), 1.0)


def _was_right(left: Step, round: Round) -> bool:
    """Whether a step that was left out holds the token that the model wrote in its place."""
    path = round.verdict.path
    written = path[-1] if path else ROOT, round.verdict.tokens[-1]
    return written in zip(left.parents, left.tokens, strict=True)


@POLICIES("cost", source="forerun; the theorem of Huang et al., SpecDec++, arXiv 2405.19715, with the costs known")
def build(
    *,
    max_steps: int = 20,
    optimism: float = 1.0,
    retry: int = 8,
    draft_ratio: float | None = None,
    row_ratio: float | None = None,
    carry: bool = True,
) -> PolicyFactory:
    """Draft while the tokens that one more step is expected to gain are worth the time that it takes.

    Costs are measured while decoding, unless given: draft_ratio is a draft step's, row_ratio that of each further row of a
    verification, both in plain forwards. optimism: a token is tried, within a budget, if it would pay with log-odds this
    many standard deviations higher. retry: also after this many rounds without a draft. carry keeps what was learnt from one
    request to the next.
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

    def costs() -> StepCosts:
        if draft_ratio is None:
            return MeasuredStepCosts()
        return GivenStepCosts(draft_ratio, lambda rows: 1 + (row_ratio or 0.0) * (rows - 1))

    return with_costs(costs, max_steps=max_steps, optimism=optimism, retry=retry, carry=carry)


def with_costs(
    costs: Callable[[], StepCosts], *, max_steps: int = 20, optimism: float = 1.0, retry: int = 8, carry: bool = True
) -> PolicyFactory:
    """The policy on costs that a caller knows, such as given_costs of a measured curve."""
    if not carry:
        return lambda: CostAware(SharedState(costs()), optimism, max_steps, retry)
    shared = SharedState(costs())
    return Learning(lambda: CostAware(shared, optimism, max_steps, retry), {"rule": shared})
