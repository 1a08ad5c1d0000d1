"""What is tried: ways to draft, and the length rules beside them. Off is one of them.

A tie goes to the simpler candidate, so each has a rank: less to load, to train and to explain comes first, and plain
decoding before all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from typing import Any

from ..engine.system.value import System, Target
from ..errors import UnsupportedOption
from ..models.packed.plan import LayerPlan

LOOKUP, EXIT, SKIP, CARVED, ADAPTER, DRAFT_MODEL, HYBRID, TREE, GRAPH = METHODS = (
    "lookup",
    "exit",
    "skip",
    "carved",
    "adapter",
    "draft-model",
    "hybrid",
    "tree",
    "graph",
)
WITH_LAW = (EXIT, SKIP, CARVED, ADAPTER, DRAFT_MODEL)
BRANCHED = (TREE, GRAPH)
RANKS = {"off": 0, LOOKUP: 1, EXIT: 2, SKIP: 3, CARVED: 4, ADAPTER: 5, DRAFT_MODEL: 6, HYBRID: 10, TREE: 20, GRAPH: 30}
POLICY_RANKS = {"fixed": 0, "cost": 1, "governor": 2}
NGRAMS = ((2, 1), (3, 1), (3, 2), (5, 2))
MOST_EXITS = 10
SMALL_WEIGHTS = ("int8", "int4")
SMALL_VOCABULARY = 8192
SHAPES = ((2, 4), (3, 8), (4, 16))  # children of a node at most, nodes of a draft at most
MIN_CONFIDENCE, RECURRING, LEAST_OF_A_GRAPH = 0.05, 1, 0.3  # what a tree and a graph take by default


@dataclass(frozen=True, slots=True)
class Way:
    """A drafter with its options. parts: lookup and the other drafter of a hybrid; what a tree or a graph branches."""

    name: str
    method: str
    drafter: str
    options: Mapping[str, Any] = field(default_factory=dict)
    parts: tuple[Way, ...] = ()

    @property
    def rank(self) -> int:
        return RANKS[self.method] + sum(part.rank for part in self.parts)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A way to draft, and a length rule."""

    way: Way
    policy: str
    policy_options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        if self.way == OFF_WAY:
            return self.way.name
        return f"{self.way.name}, {' '.join([self.policy, *(f'{k}={v}' for k, v in self.policy_options.items())])}"

    @property
    def rank(self) -> tuple[int, int]:
        return self.way.rank, POLICY_RANKS[self.policy]

    def parts(self) -> dict[str, Any]:
        """The drafter and the policy as they stand in a system's file."""
        return System(self.name, self.way.drafter, self.way.options, self.policy, self.policy_options).method()

    def system(
        self, target: Target, tuned_on: Mapping[str, Any] | None = None, measured: Mapping[str, Any] | None = None
    ) -> System:
        return System(
            self.name,
            self.way.drafter,
            self.way.options,
            self.policy,
            self.policy_options,
            target,
            tuned_on or {},
            measured or {},
        )


OFF_WAY = Way("off", "off", "none")
OFF = Candidate(OFF_WAY, "fixed")


@dataclass(frozen=True, slots=True)
class Chosen:
    """What to try. Draft models and adapters are tried where there are some."""

    methods: tuple[str, ...] = METHODS
    draft_models: tuple[str, ...] = ()
    adapters: tuple[str, ...] = ()
    vocabulary_text: str = ""

    def __post_init__(self) -> None:
        for name in self.methods:
            if name not in METHODS:
                raise UnsupportedOption(f"unknown method {name!r} to tune; known: {', '.join(METHODS)}")
        if not self.methods:
            raise UnsupportedOption(f"name at least one method to tune; known: {', '.join(METHODS)}")


def first_ways(chosen: Chosen, num_layers: int, vocabulary: int, own_weights: str) -> list[Way]:
    """All ways but skip sets, hybrids, trees and graphs, which follow from measurements. The methods take turns."""
    offered = {
        LOOKUP: lookup_ways(),
        EXIT: exit_ways(num_layers),
        CARVED: carved_ways(vocabulary, own_weights, chosen.vocabulary_text),
        ADAPTER: [
            Way(f"adapter {path}{told}", ADAPTER, "exit_adapter", {"adapter": path, **options})
            for path in chosen.adapters
            for told, options in _heads(vocabulary)
        ],
        DRAFT_MODEL: [
            Way(f"draft model {model}", DRAFT_MODEL, "draft_model", {"model": model}) for model in chosen.draft_models
        ],
    }
    in_turn = zip_longest(*(ways for method, ways in offered.items() if method in chosen.methods))
    return [way for way in chain.from_iterable(in_turn) if way is not None]


def lookup_ways() -> list[Way]:
    return [
        Way(f"lookup {low}..{high}", LOOKUP, "lookup", {"max_ngram": high, "min_ngram": low}) for high, low in NGRAMS
    ]


def exit_ways(num_layers: int) -> list[Way]:
    """Exits over the first three quarters, the shallow ones first."""
    last = max(1, num_layers * 3 // 4) if num_layers > 1 else 0
    count = min(MOST_EXITS, last)
    layers = sorted({round(1 + place * (last - 1) / max(count - 1, 1)) for place in range(count)})
    return [Way(f"exit {layer}", EXIT, "self", {"exit_layer": layer}) for layer in layers if layer < num_layers]


def carved_ways(vocabulary: int, own_weights: str, text: str = "") -> list[Way]:
    """Smaller weights than the model's own, with the whole vocabulary and with its most frequent tokens."""
    weights = SMALL_WEIGHTS[SMALL_WEIGHTS.index(own_weights) + 1 :] if own_weights in SMALL_WEIGHTS else SMALL_WEIGHTS
    words = {"vocabulary_text": text} if text else {}
    return [
        Way(f"{name}{told}", CARVED, "self", {"weights": name, **options, **(words if options else {})})
        for name in reversed(weights)
        for told, options in _heads(vocabulary)
    ]


def skip_ways(plans: Mapping[str, LayerPlan]) -> list[Way]:
    """Named sets that leave something out."""
    return [
        Way(
            f"skip {name}",
            SKIP,
            "self",
            {"skip_attention": tuple(sorted(plan.attention)), "skip_mlp": tuple(sorted(plan.mlp))},
        )
        for name, plan in plans.items()
        if plan.attention or plan.mlp
    ]


def hybrid_ways(lookup: Way, others: Iterable[Way]) -> list[Way]:
    """Lookup where it finds something, else one of the others."""
    return [
        Way(
            f"{lookup.name}, else {other.name}",
            HYBRID,
            "hybrid",
            {"then": other.drafter, **lookup.options, **other.options},
            (lookup, other),
        )
        for other in others
    ]


def branched_ways(methods: Sequence[str], others: Iterable[Way]) -> list[Way]:
    """Trees and graphs, those of them that are among the methods, of drafters with a law, in some sizes."""
    of_graph = {"m": RECURRING, "sibling": LEAST_OF_A_GRAPH, "leaf": LEAST_OF_A_GRAPH}
    return [
        Way(
            f"{method} of {other.name}, {n} a node, {budget} in all",
            method,
            method,
            {
                "of": other.drafter,
                "n": n,
                "budget": budget,
                "min_confidence": MIN_CONFIDENCE,
                **(of_graph if method == GRAPH else {}),
                **other.options,
            },
            (other,),
        )
        for other in others
        for method in BRANCHED
        if method in methods
        for n, budget in SHAPES
    ]


def with_rules(ways: Sequence[tuple[Way, int]], count: int) -> list[Candidate]:
    """At most `count` candidates of ways with their best draft lengths, the most promising way first.

    Every way gets its length before any gets a rule. Trees and graphs get no rule: their confidences bound them already.
    """
    fixed = [Candidate(way, "fixed", {"k": k}) for way, k in ways]
    chains = [way for way, _ in ways if way.method not in BRANCHED]
    rules = [Candidate(way, policy) for way in chains for policy in ("cost", "governor")]
    return [*fixed[: max(1, (count + 1) // 2)], *rules][:count]


def _heads(vocabulary: int) -> list[tuple[str, dict[str, Any]]]:
    """The whole vocabulary, and its frequent part where that is much smaller."""
    part = [(f", {SMALL_VOCABULARY} tokens", {"vocabulary": SMALL_VOCABULARY})]
    return [("", {}), *(part if vocabulary > 2 * SMALL_VOCABULARY else [])]
