"""Every rule against every fixed draft length, replayed on a trace under several costs.

Of a rule's variants, the one that is best on another trace is judged, so that no rule is tuned on the trace that judges it.
The best fixed length is chosen on the judged trace itself, which makes it the strongest baseline.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...engine.methods import policy_factory
from ...policies.base import POLICIES, PolicyFactory
from ...traces.read import Trace
from .oracle import agreeing, oracle
from .round_costs import RoundCosts
from .simulate import Replay, Simulated

FIXED = "fixed"
# rules that wrap others, or are the rival
NO_RULES = (FIXED, "bounded")


@dataclass(frozen=True, slots=True)
class Variant:
    """A registered policy with options."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return " ".join([self.name, *(f"{key}={value}" for key, value in self.options.items())])

    def build(self) -> PolicyFactory:
        """A factory without learnt state. Raises UnsupportedOption on an unknown name or option."""
        return policy_factory(self.name, self.options)


Rule = Sequence[Variant]


def default_rules() -> list[Rule]:
    """Every registered rule that needs no option, with its defaults."""
    entries = [POLICIES.entry(name) for name in POLICIES.names if name not in NO_RULES]
    return [
        [Variant(entry.name)]
        for entry in entries
        if not any(option.default is option.empty for option in entry.options.values())
    ]


def report(
    judged: Trace,
    rules: Sequence[Rule],
    costs: Sequence[RoundCosts],
    chosen_on: Trace | None = None,
    tick: Callable[[], None] = lambda: None,
) -> list[dict[str, Any]]:
    """For each of the costs: the fixed lengths, the rules and the upper lines. tick is called once for each of the costs."""
    found: list[dict[str, Any]] = []
    for one in costs:
        found.append(_under(Replay(judged, one), rules, None if chosen_on is None else Replay(chosen_on, one)))
        tick()
    return found


def fixed_lengths(replay: Replay) -> list[Simulated]:
    """No draft at all, then every fixed length up to the trace's depth."""
    plain = [[0] * len(answer.positions) for answer in replay.trace.answers]
    longer = (Variant(FIXED, {"k": k}) for k in range(1, replay.trace.header.depth + 1))
    return [replay.planned(plain), *(replay.policy(variant.build()) for variant in longer)]


def _under(replay: Replay, rules: Sequence[Rule], choosing: Replay | None) -> dict[str, Any]:
    fixed = fixed_lengths(replay)
    best = best_of(fixed)
    found: dict[str, Any] = {
        "costs": replay.costs.name,
        "fixed": [{"k": k, **as_figures(one, replay)} for k, one in enumerate(fixed)],
        "best_fixed": {"k": best, "speedup": fixed[best].speedup},
    }
    if choosing is not None:
        chosen = best_of(fixed_lengths(choosing))
        found["chosen_fixed"] = {"k": chosen, "speedup": fixed[chosen].speedup}
    found["rules"] = []
    for variant in _entrants(rules, choosing):
        one = replay.policy(variant.build())
        found["rules"].append(
            {
                "label": variant.label,
                "name": variant.name,
                "options": dict(variant.options),
                "over_best_fixed": one.speedup / fixed[best].speedup,
                **as_figures(one, replay),
            }
        )
    return {**found, "oracle": as_figures(oracle(replay), replay), "agreeing": as_figures(agreeing(replay), replay)}


def _entrants(rules: Sequence[Rule], choosing: Replay | None) -> list[Variant]:
    """All variants, or of each rule the one that is fastest on the other trace."""
    if choosing is None:
        return [variant for rule in rules for variant in rule]
    return [
        rule[0] if len(rule) == 1 else max(rule, key=lambda variant: choosing.policy(variant.build()).speedup)
        for rule in rules
    ]


def best_of(found: Sequence[Simulated]) -> int:
    """Which of them is the fastest."""
    return max(range(len(found)), key=lambda k: found[k].speedup)


def as_figures(one: Simulated, replay: Replay) -> dict[str, Any]:
    """As a dictionary; with tokens a second, where the costs are a machine's."""
    rate = one.stats.decoded / one.seconds if replay.costs.real and one.seconds else None
    return {**one.as_dict(), "tokens_per_second": rate}
