"""The throughput with a draft: tokens per round over a round's time, both from measurements.

    tokens/s = TAR(k) / (k t_d + t_t(k + 1) + o)

for drafts of k tokens, TAR being the mean number of tokens a round, the target's own included (Yan et al., arXiv
2402.01528). Three refinements match the real loop: the first of the k forwards reads all tokens of the previous round, o has
a part for each drafted and each emitted token, and the time to read the prompt is spread over the tokens of an answer. Under
an acceptance alpha, TAR(k) = (1 - alpha^(k + 1)) / (1 - alpha) (Leviathan et al., arXiv 2211.17192).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..core.cost import Cost

LENGTHS = (1, 2, 3, 4, 5, 6, 8, 10, 12)
NEARLY_ONE = 0.9999
PREFIX = 192  # tokens before the rounds that are measured


@dataclass(frozen=True, slots=True)
class Overhead:
    """Milliseconds that a round spends outside of forwards: so much always, and for each token drafted and emitted."""

    round: float
    drafted: float = 0.0
    emitted: float = 0.0

    def ms(self, drafted: float, emitted: float) -> float:
        return self.round + drafted * self.drafted + emitted * self.emitted


@dataclass(frozen=True, slots=True)
class DraftTimes:
    """Milliseconds of a draft's forwards: the first of a round by the rows that it reads, and each one after it.

    reading: of the prompt, for each token of an answer.
    """

    first: Cost
    later: float
    reading: float = 0.0


@dataclass(frozen=True, slots=True)
class Loop:
    """What the target does on this machine. verify: its forwards by rows; plain: its step where nothing drafts."""

    verify: Cost
    plain: float
    overhead: Overhead

    @property
    def plain_speed(self) -> float:
        """Tokens a second without a draft."""
        return 1000 / (self.plain + self.overhead.ms(0, 1))


@dataclass(frozen=True, slots=True)
class Rounds:
    """Drafts of k tokens. shares[n]: the share of rounds that emit n + 1 tokens, the target's own among them."""

    k: int
    shares: tuple[float, ...]

    @property
    def tokens_per_round(self) -> float:
        return sum(n * share for n, share in enumerate(self.shares, start=1))


@dataclass(frozen=True, slots=True)
class Prediction:
    k: int
    tokens_per_round: float
    tokens_per_second: float
    speedup: float


def rounds_of(alpha: float, k: int) -> Rounds:
    """If each drafted token is right with probability alpha, whatever came before. Raises ValueError outside [0, 1)."""
    check_acceptance(alpha)
    return Rounds(k, (*((1 - alpha) * alpha**n for n in range(k)), alpha**k))


def check_acceptance(alpha: float) -> None:
    if not 0 <= alpha < 1:
        raise ValueError(f"an acceptance must be in [0, 1), got {alpha}")


def round_ms(loop: Loop, draft: DraftTimes, rounds: Rounds) -> float:
    """The mean time of a round, with its tokens' share of what reading the prompt takes."""
    read = sum(share * draft.first.ms(n) for n, share in enumerate(rounds.shares, start=1))
    forwards = read + (rounds.k - 1) * draft.later + loop.verify.ms(rounds.k + 1)
    reading = draft.reading * rounds.tokens_per_round
    return forwards + reading + loop.overhead.ms(rounds.k, rounds.tokens_per_round)


def predict(loop: Loop, draft: DraftTimes, rounds: Rounds) -> Prediction:
    speed = 1000 * rounds.tokens_per_round / round_ms(loop, draft, rounds)
    return Prediction(rounds.k, rounds.tokens_per_round, speed, speed / loop.plain_speed)


def best(loop: Loop, draft: DraftTimes, at: Callable[[int], Rounds], lengths: Sequence[int] = LENGTHS) -> Prediction:
    """The fastest draft length; the shortest of equals. at: the rounds of a length."""
    return max((predict(loop, draft, at(k)) for k in lengths), key=lambda one: one.tokens_per_second)


def needed(loop: Loop, draft: DraftTimes, goal: float) -> float | None:
    """The least acceptance at which some draft length gives this speed-up; None where none does."""

    def gain(alpha: float) -> float:
        return best(loop, draft, lambda k: rounds_of(alpha, k)).speedup

    if gain(NEARLY_ONE) < goal:
        return None
    low, high = 0.0, NEARLY_ONE
    if gain(low) >= goal:
        return low
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (low, middle) if gain(middle) >= goal else (middle, high)
    return high
