"""Made-up texts and drafts, and the time that a policy would take on them: no model and no clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import exp, log
from random import Random

from forerun.core.policy import LengthPolicy
from forerun.core.values import Draft, DraftCounts, Round, Signals, Step, Timing, Verdict
from forerun.policies.base import PolicyFactory

DEPTH = 20
Drafted = Sequence[tuple[float | None, bool]]  # confidence, None for a copied token, and whether it is right


@dataclass(frozen=True)
class World:
    """requests[i][j] is the draft after token j of an answer; step and verify are seconds."""

    requests: Sequence[Sequence[Drafted]]
    step: float
    verify: Callable[[int], float]
    noise: float = 0.0
    prompt: int = 0
    reading: float = 0.0  # what the first draft of a request takes beside its steps, for each token of the prompt
    plain: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "plain", self.verify(1))


def steady(acceptance: float, requests: int, length: int, seed: int = 0) -> list[list[Drafted]]:
    """Every token is right with the same probability, and nothing tells which."""
    random = Random(seed)

    def draft() -> Drafted:
        return [(acceptance, random.random() < acceptance) for _ in range(DEPTH)]

    return [[draft() for _ in range(length)] for _ in range(requests)]


def blind(acceptance: float, requests: int, length: int, seed: int = 0) -> list[list[Drafted]]:
    """Every token is right with the same probability, and confidences are drawn from nowhere."""
    random = Random(seed)

    def draft() -> Drafted:
        return [(random.random(), random.random() < acceptance) for _ in range(DEPTH)]

    return [[draft() for _ in range(length)] for _ in range(requests)]


def mixed(hard: float, easy: float, requests: int, length: int, seed: int = 0) -> list[list[Drafted]]:
    """Requests of two kinds that confidences don't tell apart, in random order."""
    random = Random(seed)
    return [blind(random.choice((hard, easy)), 1, length, seed=random.randrange(10**9))[0] for _ in range(requests)]


def varied(base: float, requests: int, length: int, seed: int = 0, copied: bool = False) -> list[list[Drafted]]:
    """Hard and easy stretches; a confidence that tells them apart more or less."""
    random = Random(seed)
    return [list(_answer(base, length, random, copied)) for _ in range(requests)]


def _answer(base: float, length: int, random: Random, copied: bool) -> Iterator[Drafted]:
    mean, drift, ease = log(base / (1 - base)) + random.gauss(0, 0.8), random.gauss(0, 1), []
    for _ in range(length + DEPTH):
        drift = 0.6 * drift + 0.8 * random.gauss(0, 1)
        ease.append(mean + 2 * drift)
    for at in range(length):
        yield [
            (None if copied else _logistic(0.8 * (own + random.gauss(0, 1))), random.random() < _logistic(own))
            for own in ease[at : at + DEPTH]
        ]


def _logistic(x: float) -> float:
    return 1 / (1 + exp(-x))


def rounds(world: World, make: PolicyFactory, seed: int = 0) -> Iterator[tuple[list[Step], Round]]:
    """What the loop would do with the policy, request after request."""
    random = Random(seed)
    for answer in world.requests:
        policy, at, unread = make(), 0, world.prompt
        policy.begin(unread, len(answer))
        while at < len(answer):
            held_back = policy.should_stop([])
            steps, made = ([], 0) if held_back else drafted(policy, answer[at], len(answer) - at - 1)
            accepted = next((i for i in range(len(steps)) if not answer[at][i][1]), len(steps))
            jitter = exp(random.gauss(0, world.noise))
            spent = (made * world.step + (unread * world.reading if made else 0.0)) * jitter
            unread = 0 if made else unread
            timing = Timing(draft=spent, draft_forward=spent, forward=world.verify(len(steps) + 1) * jitter)
            nodes = len(steps)
            draft = Draft((0,) * nodes, tuple(range(-1, nodes - 1)), (None,) * nodes, DraftCounts(made))
            left_out_was_right = accepted == nodes < made and answer[at][nodes][1]
            verdict = Verdict(tuple(range(accepted)), (*(0,) * accepted, 0 if left_out_was_right else 1))
            round = Round(verdict.tokens, draft, verdict, at + 1, timing=timing, held_back=held_back)
            policy.observe(steps, round)
            yield steps, round
            at += accepted + 1
        policy.end()


def drafted(policy: LengthPolicy, row: Drafted, room: int) -> tuple[list[Step], int]:
    """The steps that are verified, and how many were drafted."""
    steps: list[Step] = []
    while len(steps) < min(room, DEPTH) and not (steps and policy.should_stop(steps)):
        sure = row[len(steps)][0]
        signals = None if sure is None else Signals(sure, sure, 0.0)
        steps.append(Step((0,), (len(steps) - 1,), (None,), signals=signals))
        if policy.leaves_out(steps):
            return steps[:-1], len(steps)
    return steps, len(steps)


def speed(world: World, make: PolicyFactory, seed: int = 0) -> float:
    """Tokens per second over plain decoding's."""
    tokens = seconds = 0.0
    unread = 0
    for steps, round in rounds(world, make, seed):
        tokens += len(round.tokens)
        made = round.draft.counts.forwards
        seconds += made * world.step + world.verify(len(steps) + 1)
        unread = world.prompt if round.start == 1 else unread
        if made:
            seconds += unread * world.reading
            unread = 0
    return tokens * world.plain / seconds


def best_fixed(world: World, longest: int = 12) -> float:
    """The speed of the fixed draft length that is the fastest on this world, or of plain decoding."""
    return max(1.0, *(_fixed(world, k) for k in range(1, longest + 1)))


def _fixed(world: World, k: int) -> float:
    tokens = seconds = 0.0
    for answer in world.requests:
        at = 0
        seconds += world.prompt * world.reading
        while at < len(answer):
            drafted = min(k, len(answer) - at - 1)
            accepted = next((i for i in range(drafted) if not answer[at][i][1]), drafted)
            tokens += accepted + 1
            seconds += drafted * world.step + world.verify(drafted + 1)
            at += accepted + 1
    return tokens * world.plain / seconds
