"""Replays a policy on a trace, without a model: its rounds, and the time that they would have taken.

The policy is called as in the loop, with the recorded signals of its steps, the verdict, and the round's time under the
given costs. No draft is longer than the trace's. A round of that length counts as clipped, since the policy might have
continued. A trace of a drafter that branches can be replayed as its trees or as the other drafter's chains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, final

from ...core.policy import LengthPolicy
from ...core.values import Draft, DraftCounts, Round, Step, Timing, Verdict
from ...engine.stats import Stats
from ...policies.base import PolicyFactory
from ...traces.read import Position, Trace, TracedAnswer
from .draft_points import DraftPoint, branched, chain
from .round_costs import RoundCosts

# how many of these steps are drafted where so many of an answer's tokens are known, more than there are if one more is
# asked for than the drafter has; None: the policy wants no draft
Choice = Callable[[int, Sequence[Step]], int | None]
Observe = Callable[[Sequence[Step], Round], None]


@dataclass(frozen=True, slots=True, eq=False)
class Simulated:
    """Totals of a policy's rounds. seconds and plain_seconds are in the costs' own unit, after each first token."""

    stats: Stats
    seconds: float
    plain_seconds: float
    clipped: int

    @property
    def speedup(self) -> float:
        """Over plain decoding; 1 where there was no second token to decode."""
        return self.plain_seconds / self.seconds if self.seconds else 1.0

    def as_dict(self) -> dict[str, Any]:
        stats = self.stats
        return {
            "speedup": self.speedup,
            "tokens_per_round": stats.tokens_per_round,
            "drafted_per_round": stats.drafted / stats.rounds if stats.rounds else 0.0,
            "acceptance": stats.acceptance,
            "discard_rate": stats.discard_rate,
            "verification_rate": stats.verification_rate,
            "draft_forwards_per_token": stats.draft_forwards / stats.decoded if stats.decoded else 0.0,
            "held_back_rounds": stats.held_back / stats.rounds if stats.rounds else 0.0,
            "clipped_rounds": self.clipped / stats.rounds if stats.rounds else 0.0,
            "tokens": stats.decoded,
            "rounds": stats.rounds,
        }


@final
class Replay:
    """A trace under costs; one policy after the other can be replayed on it.

    branches: replay the trees, not the chains. Raises ValueError where the trace has no trees.
    """

    def __init__(self, trace: Trace, costs: RoundCosts, branches: bool = False) -> None:
        if branches and not trace.branched and any(answer.positions for answer in trace.answers):
            raise ValueError(f"{trace.path} holds chains alone; trace the drafter tree or graph")
        self.trace = trace
        self.costs = costs
        self._branches = branches
        self._verify_ms, self._draft_ms = cache(costs.verify_ms), cache(costs.draft_ms)
        self._plain = sum(map(self._plain_ms, trace.answers)) / 1e3
        self._places = [
            [self._draft_point(answer, known, position) for known, position in enumerate(answer.positions, start=1)]
            for answer in trace.answers
        ]
        first = (place.steps[0] for places in self._places for place in places if place.steps)
        self._copies = any(not step.counts.forwards for step in first)

    def policy(self, make: PolicyFactory) -> Simulated:
        """Answer after answer, each with a policy of its own, as an engine does with a batch of one.

        Raises ValueError on a policy that was trained for another target or drafter.
        """
        stats, clipped = Stats(), 0

        def observed(policy: LengthPolicy, steps: Sequence[Step], round: Round) -> None:
            nonlocal clipped
            policy.observe(steps, round)
            clipped += len(steps) == self.trace.header.depth

        for number, answer in enumerate(self.trace.answers):
            policy = make()
            if policy.trained_for is not None:
                policy.trained_for.check(self.trace.header.pair, "policy")
            unread = len(answer.prompt) if self.costs.read_ms(len(answer.prompt)) else 0
            policy.begin(unread, answer.room - 1, self._copies)
            pull = _Pull(policy, answer.room)
            for round in self.rounds(number, pull, partial(observed, policy), pull.has_left_out):
                stats.add(round)
            policy.end()
        return self._found(stats, clipped)

    def planned(self, lengths: Sequence[Sequence[int]]) -> Simulated:
        """With given numbers of steps, by answer and position."""
        stats = Stats()
        for number, own in enumerate(lengths):
            for round in self.rounds(number, partial(_by_place, own)):
                stats.add(round)
        return self._found(stats, 0)

    def draft_points(self, number: int) -> Sequence[DraftPoint]:
        """What can be drafted in an answer, after each of its tokens but the last."""
        return self._places[number]

    def agreed(self, number: int) -> list[int]:
        """How many steps agree with the answer, by position."""
        return [len(place.path) for place in self._places[number]]

    def rounds(
        self,
        number: int,
        choose: Choice,
        observe: Observe = lambda steps, round: None,
        left_out: Callable[[], bool] = lambda: False,
    ) -> Iterator[Round]:
        """An answer's rounds, its prefill first. left_out: whether the last of the chosen steps gets no row."""
        answer = self.trace.answers[number]
        first = answer.tokens[:1]
        yield Round(first, Draft(), Verdict((), first), len(answer.prompt), prefill=True)
        known, unread = 1, True
        while known < len(answer.tokens):
            place = self._places[number][known - 1]
            length = choose(known, place.steps)
            drafted = place.steps[: length or 0]
            reads = unread and any(map(self.costs.pays, drafted))
            unread = unread and not reads
            left = int(bool(drafted) and left_out())
            round = replace(self._round(answer, place, known, length or 0, reads, left), held_back=length is None)
            observe(drafted[: len(drafted) - left], round)
            yield round
            known += len(round.tokens)

    def _found(self, stats: Stats, clipped: int) -> Simulated:
        return Simulated(stats, stats.decode_seconds, self._plain, clipped)

    def _round(
        self, answer: TracedAnswer, place: DraftPoint, known: int, length: int, reads: bool, left: int = 0
    ) -> Round:
        """The round of so many steps after so many known tokens, the last `left` of which get no row.

        reads: its drafter reads the prompt first.
        """
        drafted = place.steps[:length]
        verified = drafted[: len(drafted) - left]
        path = place.path[: len(verified)]
        tokens = answer.tokens[known : known + len(path) + 1]
        # after an accepted end of sequence the target adds a token that nobody sees
        verdict = Verdict(path, tokens if len(tokens) > len(path) else (*tokens, tokens[-1]))
        reading = self.costs.read_ms(len(answer.prompt)) / 1e3 if reads else 0.0
        drafting = reading + sum(step.forward_seconds for step in drafted)
        draft = Draft.of(verified, sum((step.counts for step in drafted[len(verified) :]), DraftCounts()))
        if length > len(drafted):
            draft, drafting = replace(draft, counts=draft.counts + place.left), drafting + place.left_seconds
        forward = self._verify_ms(len(draft) + 1, _prefix(answer, known)) / 1e3
        timing = Timing(draft=drafting, draft_forward=drafting, forward=forward)
        return Round(tokens, draft, verdict, len(answer.prompt) + known, timing=timing)

    def _plain_ms(self, answer: TracedAnswer) -> float:
        return sum(self._verify_ms(1, _prefix(answer, known)) for known in range(1, len(answer.tokens)))

    def configs(self, number: int, known: int, read: bool) -> Iterator[tuple[float, int, bool]]:
        """Seconds of a round at a place by draft length, and whether the drafter has read the prompt after it."""
        answer, place = self.trace.answers[number], self._places[number][known - 1]
        for length in range(len(place.steps) + 1):
            pays = any(map(self.costs.pays, place.steps[:length]))
            timing = self._round(answer, place, known, length, pays and not read).timing
            yield timing.draft + timing.verify, length, read or pays

    def _draft_point(self, answer: TracedAnswer, known: int, position: Position) -> DraftPoint:
        def draft_ms(forwards: float) -> float:
            return self._draft_ms(forwards, _prefix(answer, known))

        if self._branches:
            return branched(position.branches, self.costs, draft_ms)
        return chain(position, self.costs, draft_ms)


def _prefix(answer: TracedAnswer, known: int) -> int:
    """The committed tokens: all known ones but the pending."""
    return len(answer.prompt) + known - 1


def _by_place(lengths: Sequence[int], known: int, steps: Sequence[Step]) -> int:
    return lengths[known - 1]


@final
class _Pull:
    """How many steps the loop pulls under a policy, in an answer of so much room, as decode does."""

    def __init__(self, policy: LengthPolicy, room: int) -> None:
        self._policy = policy
        self._room = room
        self._left_out = False

    def has_left_out(self) -> bool:
        """Whether the last step that was pulled is left out."""
        return self._left_out

    def __call__(self, known: int, steps: Sequence[Step]) -> int | None:
        self._left_out = False
        if self._policy.should_stop([]):
            return None
        pulled = 0
        while pulled < self._room - known - 1 and not (pulled and self._policy.should_stop(steps[:pulled])):
            pulled += 1
            if pulled > len(steps):
                break
            if self._policy.leaves_out(steps[:pulled]):
                self._left_out = True
                break
        return pulled
