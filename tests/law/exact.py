"""Exact enumeration of what the real decode loop writes, on models that are tables of fractions.

Nothing of the loop is copied: decode, the drafters, the policies, Context, verify and the keys of Chance are forerun's own.
Three things stand in for tensors: a Row in the place of a row of logits, FractionLaw in the place of softmax and
Categorical, and Number, an unknown number in [0, 1), in the place of a hash. Comparing a Number branches; the two
branches narrow it, so that a number which decides twice decides the same way twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, is_dataclass
from fractions import Fraction
from itertools import accumulate
from math import prod
from random import Random
from typing import Any, TypeVar, final

import torch
from torch import Tensor

from forerun.core.chance import Chance
from forerun.core.choice import Chooser
from forerun.core.constraint import Constraint
from forerun.core.decode import decode
from forerun.core.drafter import Drafter
from forerun.core.forward import Rows
from forerun.core.law import Law, PointMass
from forerun.core.policy import LengthPolicy
from forerun.core.values import ROOT, Context, Sampling
from forerun.errors import InvalidLogits
from forerun.models.packed.sequence import shared_prefix

T = TypeVar("T")

PROMPT = 9  # outside of every small vocabulary
WARM = Sampling(temperature=1.0)
WITH_HISTORY = Sampling(temperature=1.0, presence_penalty=1.0)


@final
class FractionLaw(Law):
    """A law of exact fractions."""

    def __init__(self, weights: Iterable[Fraction | int]) -> None:
        weights = list(weights)
        total = sum(weights)
        self.probs = tuple(Fraction(weight) / total for weight in weights)

    def probability(self, token: int) -> Fraction:
        return self.probs[token] if 0 <= token < len(self.probs) else Fraction(0)

    def minus(self, other: Law) -> Law:
        if isinstance(other, PointMass):
            rest = [Fraction(0) if token == other.token else p for token, p in enumerate(self.probs)]
        else:
            rest = [max(p - other.probability(token), Fraction(0)) for token, p in enumerate(self.probs)]
        return FractionLaw(rest) if any(rest) else self

    def quantile(self, u: float) -> int:
        return next(token for token, cell in enumerate(accumulate(self.probs)) if u < cell)


@final
class Number:
    """An unknown number in [low, high)."""

    def __init__(self, choose: Callable[[], bool]) -> None:
        self.low, self.high = Fraction(0), Fraction(1)
        self._choose = choose

    def __lt__(self, bound: Fraction) -> bool:
        if bound <= self.low or bound >= self.high:
            return bound >= self.high
        if self._choose():
            self.low = Fraction(bound)
            return False
        self.high = Fraction(bound)
        return True

    __le__ = __lt__  # the same but for a single point; test_gate.py looks at that point


@final
class Enumerated(Chance):
    """One branch of all chances: script says which side each undecided comparison takes, and grows with zeros."""

    def __init__(self, script: list[int]) -> None:
        self.numbers: dict[tuple[Any, ...], Number] = {}
        self.used_twice = False
        self._script = script
        self._at = 0

    def uniform(self, purpose: bytes, *key: int) -> Any:
        self.used_twice |= (purpose, key) in self.numbers
        return self.numbers.setdefault((purpose, key), Number(self._choose))

    def _choose(self) -> bool:
        if self._at == len(self._script):
            self._script.append(0)
        self._at += 1
        return bool(self._script[self._at - 1])

    @property
    def weight(self) -> Fraction:
        return prod((number.high - number.low for number in self.numbers.values()), start=Fraction(1))


def branches(
    run: Callable[[Enumerated], T], begin: tuple[int, ...] = ()
) -> Iterator[tuple[T, Fraction, tuple[int, ...]]]:
    """Every outcome of run whose choices begin so, with its probability and its script."""
    script = list(begin)
    while True:
        chance = Enumerated(script)
        yield run(chance), chance.weight, tuple(script)
        while len(script) > len(begin) and script[-1]:
            script.pop()
        if len(script) == len(begin):
            return
        script[-1] = 1


@dataclass(frozen=True)
class Table:
    """A model: the law of the next token as a function of the whole text, of small random whole weights.

    After the prompt comes token 0, so that all that is drawn is drawn after drafts. support are the tokens that have
    weights at all; top keeps the largest; greedy is a point mass on the first of those. penalty divides a token's weight
    for each time that it is found in the history, which is what the loop says was emitted.
    """

    name: str
    vocabulary: int = 3
    weights: tuple[int, ...] = (1, 2, 3, 5)
    support: tuple[int, ...] | None = None
    top: int | None = None
    greedy: bool = False
    penalty: int = 1

    def raw(self, text: Sequence[int]) -> list[int]:
        """Weights before top, greedy and penalty."""
        if len(text) == 1:
            return [1, *[0] * (self.vocabulary - 1)]
        drawn = Random(f"{self.name} {tuple(text)}").choices(self.weights, k=self.vocabulary)
        weights = [weight * (self.support is None or token in self.support) for token, weight in enumerate(drawn)]
        return weights if any(weights) else [1] * self.vocabulary

    def law(self, text: Sequence[int], history: Sequence[int] = ()) -> Law:
        weights = self.raw(text)
        if self.greedy:
            return PointMass(weights.index(max(weights)))
        if self.top is not None:
            least = sorted(weights)[-self.top]
            weights = [weight if weight >= least else 0 for weight in weights]
        return FractionLaw(
            Fraction(weight, self.penalty ** list(history[1:]).count(token)) for token, weight in enumerate(weights)
        )


@dataclass(frozen=True)
class Row:
    """What stands in for a row of logits: whose it is, and after which text. Policies may read it as one."""

    table: Table
    text: tuple[int, ...]

    def float(self) -> Tensor:
        return torch.tensor(self.table.raw(self.text)).log()

    def __getitem__(self, token: int) -> Tensor:
        return self.float()[token]


class RowList(list[Row]):
    """Rows that also take a list of numbers and the slice of a smaller vocabulary, and know how many they are."""

    @property
    def shape(self) -> tuple[int]:
        return (len(self),)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, list):
            return RowList(self[index] for index in key)
        return self if isinstance(key, tuple) else super().__getitem__(key)


def table_law(
    row: Row,
    sampling: Sampling,
    prefix: Sequence[int] = (),
    prompt_length: int = 0,
    chooser: Chooser | None = None,
    allowed: Any = None,
) -> Law:
    """In the place of sampling.law."""
    return restricted(row.table.law(row.text, prefix), allowed)


def restricted(law: Law, allowed: Collection[int] | None) -> Law:
    """The law given that the token is an allowed one."""
    if allowed is None:
        return law
    assert isinstance(law, FractionLaw)
    weights = [p if token in allowed else 0 for token, p in enumerate(law.probs)]
    if not any(weights):
        raise InvalidLogits("no token is allowed here")
    return FractionLaw(weights)


def table_ranked(
    row: Row, sampling: Sampling, n: int, prefix: Sequence[int] = (), prompt_length: int = 0, allowed: Any = None
) -> tuple[Law, list[tuple[int, float]]]:
    """In the place of sampling.ranked."""
    law = table_law(row, sampling, prefix, allowed=allowed)
    probs = law.probs if isinstance(law, FractionLaw) else FractionLaw(row.table.raw(row.text)).probs
    best = sorted(range(len(probs)), key=lambda token: (-probs[token], token))
    return law, [(token, float(probs[token])) for token in best[:n] if probs[token]]


class TableSequence:
    """In the place of models.sequence.Sequence, with its contract: a prefix, and scratch rows after it."""

    def __init__(self, table: Any, drafts: Any = None) -> None:
        self.ids: list[int] = []
        self.runner = self
        self.max_length, self.num_layers = None, 2
        self._table = table
        self._drafts = drafts or table
        self._scratch: list[tuple[int, ...]] = []

    async def sync(
        self, ids: Sequence[int], taps: frozenset[int] = frozenset(), states: Tensor | None = None, chain: Any = None
    ) -> Rows:
        assert states is None or len(states) == len(ids) - shared_prefix(self.ids, ids[:-1])
        self.ids = list(ids)
        self._scratch = []
        return self._rows(self._table, [tuple(ids)], taps)

    async def forward(
        self,
        tokens: Sequence[int],
        parents: Sequence[int] | None = None,
        plan: Any = None,
        taps: frozenset[int] = frozenset(),
        states: Tensor | None = None,
        want: int | None = None,
        chain: Any = None,
    ) -> Rows:
        assert states is None or len(states) == len(tokens)
        first = len(self._scratch)
        for token, parent in zip(tokens, parents or range(first - 1, first - 1 + len(tokens)), strict=True):
            self._scratch.append((*(self.ids if parent == ROOT else self._scratch[parent]), token))
        return self._rows(self._drafts, self._scratch[-len(tokens) :], taps)

    async def complete(self, tokens: Sequence[int], parents: Sequence[int], taps: frozenset[int] = frozenset()) -> Rows:
        self._scratch = []
        for token, parent in zip(tokens, parents, strict=True):
            self._scratch.append((*(self.ids if parent == ROOT else self._scratch[parent]), token))
        return self._rows(self._table, self._scratch, taps)

    def states(self, layer: int) -> Tensor:
        """A state that says nothing, for each token."""
        return torch.zeros(len(self.ids), 1)

    def keep(self, rows: Sequence[int]) -> None:
        self.ids = list(self._scratch[rows[-1]])
        self._scratch = []

    def _rows(self, table: Any, texts: Sequence[tuple[int, ...]], taps: frozenset[int]) -> Rows:
        rows = RowList(Row(table, text) for text in texts)
        hidden = torch.eye(PROMPT + 1)[[text[-1] for text in texts]]  # a state tells the token that was read
        return Rows(rows, hidden, {layer: torch.zeros(len(rows), 1) for layer in taps})  # type: ignore[arg-type]


@dataclass(frozen=True)
class Scenario:
    """A target, a way to draft and a way to stop; the joint law of the first `length` tokens is asked for."""

    target: Any
    drafter: Callable[[TableSequence], Drafter]
    policy: Callable[[], LengthPolicy]
    drafts: Any = None
    eos: frozenset[int] = frozenset()
    sampling: Sampling = WARM
    max_new_tokens: int = 9
    length: int = 4
    constraint: Callable[[], Constraint] | None = None


def truth(scenario: Scenario, text: tuple[int, ...] = (PROMPT,)) -> dict[tuple[int, ...], Fraction]:
    """The law of plain decoding: the product of the target's own laws."""
    written = text[1:]
    constraint = scenario.constraint() if scenario.constraint else None
    if constraint is not None and written:
        constraint.emit(written)
    ended = (written and written[-1] in scenario.eos) or (constraint is not None and constraint.complete)
    if len(written) == scenario.length or ended:
        return {written: Fraction(1)}
    law = restricted(scenario.target.law(text, text), constraint and constraint.allowed(()))
    return {
        rest: p * weight
        for token in range(scenario.target.vocabulary)
        if (p := Fraction(law.probability(token)))
        for rest, weight in truth(scenario, (*text, token)).items()
    }


@dataclass(frozen=True)
class _Reached:
    """Where the loop stands after some round: the text, what the policy has learnt, whether the text is finished."""

    text: tuple[int, ...]
    learnt: Any
    finished: bool


def written(scenario: Scenario, merge: bool = True) -> dict[tuple[int, ...], Fraction]:
    """The law of what the loop writes, over all its draws and coins.

    Branches that reach the same state are merged, which is right as long as no number decides twice: that is asserted.
    """
    law: dict[tuple[int, ...], Fraction] = {}
    pending: list[dict[Any, tuple[Fraction, tuple[int, ...], Fraction, int]]] = [{} for _ in range(scenario.length)]
    pending[0][()] = (Fraction(1), (), Fraction(1), 0)
    for states in pending:
        for weight, begin, begin_weight, rounds in states.values():
            for (reached, twice), branch_weight, script in branches(
                lambda c, n=rounds: _run(scenario, c, n + 1), begin
            ):
                assert not (merge and twice), "a number decided twice"
                share = weight * branch_weight / begin_weight
                tokens = reached.text[1 : scenario.length + 1]
                if reached.finished or len(tokens) == scenario.length:
                    law[tokens] = law.get(tokens, Fraction(0)) + share
                    continue
                key = (reached.text, reached.learnt) if merge else script
                known = pending[len(tokens)].get(key, (Fraction(0), script, branch_weight, rounds + 1))
                pending[len(tokens)][key] = (known[0] + share, *known[1:])
    return law


def _run(scenario: Scenario, chance: Enumerated, rounds: int) -> tuple[_Reached, bool]:
    context, policy = loop(scenario, chance, rounds)
    return _Reached(tuple(context.ids), state(policy), context.finish_reason is not None), chance.used_twice


def loop(scenario: Scenario, chance: Chance, rounds: int) -> tuple[Context, LengthPolicy]:
    """The real loop, for so many rounds, the prefill counted."""
    context = Context(
        [PROMPT],
        chance,
        scenario.sampling,
        max_new_tokens=scenario.max_new_tokens,
        eos=scenario.eos,
        constraint=scenario.constraint() if scenario.constraint else None,
    )
    target = TableSequence(scenario.target, scenario.drafts)
    policy = scenario.policy()
    drafter = scenario.drafter(target)
    assert drafter.rule is None, f"a {type(drafter).__name__} with a rule of its own is lossy"
    source: AsyncGenerator[Any] = decode(target, drafter, policy, context)  # type: ignore[arg-type]
    for _ in range(rounds):
        _finished(source.__anext__())
    _finished(source.aclose())
    return context, policy


def _finished(awaitable: Any) -> None:
    """Run a coroutine that waits for nothing."""
    try:
        awaitable.send(None)
    except StopIteration:
        return
    raise AssertionError("it waits for a forward")


def state(value: Any) -> Any:
    """What a policy remembers, as a hashable value."""
    if isinstance(value, dict):
        return tuple(sorted((repr(key), state(inner)) for key, inner in value.items()))
    if isinstance(value, list | tuple | deque):
        return tuple(map(state, value))
    if is_dataclass(value) and not isinstance(value, type):
        return state(astuple(value))
    if isinstance(value, LengthPolicy) or type(value).__module__.startswith("forerun.policies"):
        return tuple((name, state(inner)) for name, inner in sorted(vars(value).items()))
    return value


def distance(one: dict[tuple[int, ...], Fraction], other: dict[tuple[int, ...], Fraction]) -> Fraction:
    """Total variation."""
    return (
        sum((abs(one.get(key, Fraction(0)) - other.get(key, Fraction(0))) for key in {*one, *other}), Fraction(0)) / 2
    )


def assert_exact(scenario: Scenario) -> None:
    assert written(scenario) == truth(scenario)
