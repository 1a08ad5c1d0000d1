"""The exact gate for rules that learn while decoding, from verdicts and times; and one that peeks, which must fail."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from importlib import import_module
from itertools import count
from typing import Any, final

import pytest

from forerun.core.drafter import Drafter
from forerun.core.policy import LengthPolicy
from forerun.core.values import Context, Draft, Round, Signals, Step, Timing, Verdict
from forerun.policies import adaptive, confidence_product, cost, entropy, governor, roc

from . import drafts
from .exact import Scenario, Table, TableSequence, distance, truth, written

pytestmark = pytest.mark.usefixtures("tables", "clock")

SPARSE = (0, 0, 1, 2, 3)
PAIRS = {
    "dense": (Table("p"), Table("q")),
    "zeros": (Table("p0", weights=SPARSE), Table("q0", weights=SPARSE)),
    "greedy draft": (Table("p"), Table("p", greedy=True)),
}


def roc_that_knows_pairs() -> LengthPolicy:
    pairs = roc.Pairs(0.4, 6)
    pairs.add([(0.5, True), (0.4, False), (0.3, True), (0.6, True), (0.2, False), (0.1, False)])
    return roc.Roc(pairs, 3)


def timed(drafted: int, accepted: int, draft: float, forward: float) -> tuple[list[Step], Round]:
    """A round of before."""
    steps = [Step((0,), (i - 1,), (None,), signals=Signals(0.5, 0.5, 0.7)) for i in range(drafted)]
    verdict = Verdict(tuple(range(accepted)), (0,) * (accepted + 1))
    timing = Timing(draft=draft, forward=forward)
    return steps, Round(verdict.tokens, Draft.of(steps), verdict, 9, timing=timing, held_back=not drafted)


def measured_cost() -> LengthPolicy:
    policy = cost.build(optimism=0.0, retry=1, max_steps=3)()
    for accepted in (1, 0, 2, 0, 1, 0):
        policy.observe(*timed(2, accepted, 1.2, 9.0))
    return policy


def governed() -> LengthPolicy:
    policy = governor.build(inner="fixed", k=2, credit=0.2)()
    for _ in range(3):
        policy.observe(*timed(0, 0, 0.0, 5.0))
    return policy


POLICIES: dict[str, Callable[[], LengthPolicy]] = {
    "adaptive": lambda: adaptive.build(start=0.4, epsilon=0.3, beta1=0.2, beta2=0.1, max_steps=3)(),
    "adaptive, paper": lambda: adaptive.build(start=0.4, epsilon=0.3, beta2=0.1, rule="paper", signal="best")(),
    "confidence product": lambda: confidence_product.build(product=0.3, max_steps=3)(),
    "entropy": lambda: entropy.build(acceptance=0.55, max_steps=3)(),
    "roc": roc_that_knows_pairs,
    "cost, given": lambda: cost.build(draft_ratio=0.1, retry=1, max_steps=3)(),
    "cost, measured": measured_cost,
    "governor": governed,
}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that ticks when it is read, so that a repeated branch measures the same times."""
    ticks = count()
    monkeypatch.setattr(import_module("forerun.core.decode"), "perf_counter", lambda: next(ticks))


@final
class Noted(LengthPolicy):
    """Another policy; what it drafted is noted."""

    def __init__(self, inner: LengthPolicy, lengths: list[int]) -> None:
        self._inner = inner
        self._note = lengths.append

    def should_stop(self, steps: Sequence[Step]) -> bool:
        return self._inner.should_stop(steps)

    def observe(self, steps: Sequence[Step], round: Round) -> None:
        self._note(len(steps))
        self._inner.observe(steps, round)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("pair", PAIRS)
def test_what_a_rule_learns_leaves_the_law_as_it_is(pair: str, policy: str) -> None:
    target, draft = PAIRS[pair]
    lengths: list[int] = []
    made = POLICIES[policy]
    scenario = Scenario(target, drafts.chain, lambda: Noted(made(), lengths), draft, length=3, max_new_tokens=6)
    assert written(scenario) == truth(scenario)
    assert len(set(lengths)) > 1 or pair == "greedy draft"


@final
class Ahead:
    """What a peeking rule has no right to: the next token, the text before it, and its probability in the draft's law."""

    def __init__(self) -> None:
        self.text: tuple[int, ...] = ()
        self.step: Step | None = None


@final
class OneAhead(Drafter):
    """Another drafter, which draws a step before it is asked for and shows it."""

    def __init__(self, inner: Drafter, ahead: Ahead) -> None:
        self._inner = inner
        self._ahead = ahead

    async def draft(self, context: Context) -> AsyncGenerator[Step]:
        text = tuple(context.ids)
        async with aclosing(self._inner.draft(context)) as source:
            step = await anext(source)
            while True:
                text = (*text, *step.tokens)
                following = await anext(source)
                self._ahead.text, self._ahead.step = text, following
                yield step
                step = following


@final
class Peeks(LengthPolicy):
    """Stops where the target's law of the running round thinks less of the next token than the draft does."""

    def __init__(self, target: Table, ahead: Ahead, shy: bool) -> None:
        self._target = target
        self._ahead = ahead
        self._shy = shy

    def should_stop(self, steps: Sequence[Step]) -> bool:
        if not steps or len(steps) == 3:
            return bool(steps)
        step = self._ahead.step
        assert step is not None
        drawn_from = step.laws[0]
        assert drawn_from is not None
        token = step.tokens[0]
        return self._shy and self._target.law(self._ahead.text).probability(token) < drawn_from.probability(token)


def peeking(shy: bool) -> Scenario:
    target, draft = PAIRS["dense"]
    ahead = Ahead()

    def drafter(sequence: TableSequence) -> Drafter:
        return OneAhead(drafts.chain(sequence), ahead)

    return Scenario(target, drafter, lambda: Peeks(target, ahead, shy), draft, length=4)


def test_a_rule_that_peeks_at_the_targets_law_of_the_running_round_moves_the_law() -> None:
    """It stops before a token that would be rejected, so that the token in its place isn't drawn from what is left."""
    assert written(peeking(shy=False)) == truth(peeking(shy=False))
    moved: Any = distance(written(peeking(shy=True)), truth(peeking(shy=True)))
    assert round(float(moved), 3) == 0.09
