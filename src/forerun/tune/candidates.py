"""The candidates of a tuning run: drafters with their options, combined with length policies, and off.

A tie goes to the simpler candidate, so each has a rank. Candidates with less to load, to train and to explain come first,
and plain decoding before all others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UnsupportedOption
from ..models.packed.plan import LayerPlan

if TYPE_CHECKING:
    from ..engine.system.value import System, Target

LOOKUP, SUFFIX, EXIT, SKIP, CARVED, ADAPTER, DRAFT_MODEL, GUESSED, HYBRID, TREE, GRAPH = METHODS = (
    "lookup",
    "suffix",
    "exit",
    "skip",
    "carved",
    "adapter",
    "draft-model",
    "guessed",
    "hybrid",
    "tree",
    "graph",
)
COPYING = (LOOKUP, SUFFIX)
CHECKING = (EXIT, SKIP, CARVED, DRAFT_MODEL)  # drafters that check guesses
WITH_LAW = (EXIT, SKIP, CARVED, ADAPTER, DRAFT_MODEL)
BRANCHED = (TREE, GRAPH)
RANKS = {
    "off": 0,
    LOOKUP: 1,
    SUFFIX: 1,
    EXIT: 2,
    SKIP: 3,
    CARVED: 4,
    ADAPTER: 5,
    DRAFT_MODEL: 6,
    GUESSED: 8,
    HYBRID: 10,
    TREE: 20,
    GRAPH: 30,
}
POLICY_RANKS = {"fixed": 0, "cost": 1, "governor": 2}
NGRAMS = ((2, 1), (3, 1), (3, 2), (5, 2))
MOST_EXITS = 10
SMALL_WEIGHTS = ("int8", "int4")
SMALL_VOCABULARY = 8192
SHAPES = ((2, 4), (3, 8), (4, 16))  # children of a node at most, nodes of a draft at most
MIN_CONFIDENCE, RECURRING, LEAST_OF_A_GRAPH = 0.05, 1, 0.3  # what a tree and a graph take by default


@dataclass(frozen=True, slots=True)
class DrafterConfig:
    """A drafter with its options.

    parts: the drafter that copies and the other one, of a hybrid and of a draft of guesses; what a tree or a graph branches.
    """

    name: str
    method: str
    drafter: str
    options: Mapping[str, Any] = field(default_factory=dict)
    parts: tuple[DrafterConfig, ...] = ()

    @property
    def rank(self) -> int:
        return RANKS[self.method] + sum(part.rank for part in self.parts)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A drafter and a length policy, with their options."""

    config: DrafterConfig
    policy: str
    policy_options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        if self.config == OFF_CONFIG:
            return self.config.name
        return f"{self.config.name}, {' '.join([self.policy, *(f'{k}={v}' for k, v in self.policy_options.items())])}"

    @property
    def rank(self) -> tuple[int, int]:
        return self.config.rank, POLICY_RANKS[self.policy]

    def parts(self) -> dict[str, Any]:
        """The drafter and the policy as they stand in a system's file."""
        from ..engine.system.value import System

        return System(self.name, self.config.drafter, self.config.options, self.policy, self.policy_options).method()

    def system(
        self, target: Target, tuned_on: Mapping[str, Any] | None = None, measured: Mapping[str, Any] | None = None
    ) -> System:
        from ..engine.system.value import System

        return System(
            self.name,
            self.config.drafter,
            self.config.options,
            self.policy,
            self.policy_options,
            target,
            tuned_on or {},
            measured or {},
        )


OFF_CONFIG = DrafterConfig("off", "off", "none")
OFF = Candidate(OFF_CONFIG, "fixed")


@dataclass(frozen=True, slots=True)
class Chosen:
    """What to try. Draft models, adapters and tables of n-grams are tried where there are some."""

    methods: tuple[str, ...] = METHODS
    draft_models: tuple[str, ...] = ()
    adapters: tuple[str, ...] = ()
    vocabulary_text: str = ""
    tables: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in self.methods:
            if name not in METHODS:
                raise UnsupportedOption(f"unknown method {name!r} to tune; known: {', '.join(METHODS)}")
        if not self.methods:
            raise UnsupportedOption(f"name at least one method to tune; known: {', '.join(METHODS)}")


def first_configs(chosen: Chosen, num_layers: int, vocabulary: int, own_weights: str) -> list[DrafterConfig]:
    """All drafters but skip sets and those of other drafters, which depend on measurements. The methods alternate."""
    offered = {
        LOOKUP: lookup_configs(),
        SUFFIX: suffix_configs(chosen.tables),
        EXIT: exit_configs(num_layers),
        CARVED: carved_configs(vocabulary, own_weights, chosen.vocabulary_text),
        ADAPTER: [
            DrafterConfig(f"adapter {path}{told}", ADAPTER, "exit_adapter", {"adapter": path, **options})
            for path in chosen.adapters
            for told, options in _heads(vocabulary)
        ],
        DRAFT_MODEL: [
            DrafterConfig(f"draft model {model}", DRAFT_MODEL, "draft_model", {"model": model})
            for model in chosen.draft_models
        ],
    }
    in_turn = zip_longest(*(configs for method, configs in offered.items() if method in chosen.methods))
    return [config for config in chain.from_iterable(in_turn) if config is not None]


def lookup_configs() -> list[DrafterConfig]:
    return [
        DrafterConfig(f"lookup {low}..{high}", LOOKUP, "lookup", {"max_ngram": high, "min_ngram": low})
        for high, low in NGRAMS
    ]


def suffix_configs(tables: Sequence[str]) -> list[DrafterConfig]:
    """With each table of the model's own n-grams, and without."""
    with_tables = [DrafterConfig(f"suffix with {Path(one).name}", SUFFIX, "suffix", {"ngrams": one}) for one in tables]
    return [*with_tables, DrafterConfig("suffix", SUFFIX, "suffix")]


def exit_configs(num_layers: int) -> list[DrafterConfig]:
    """Exits over the first three quarters, the shallow ones first."""
    last = max(1, num_layers * 3 // 4) if num_layers > 1 else 0
    count = min(MOST_EXITS, last)
    layers = sorted({round(1 + place * (last - 1) / max(count - 1, 1)) for place in range(count)})
    return [
        DrafterConfig(f"exit {layer}", EXIT, "self", {"exit_layer": layer}) for layer in layers if layer < num_layers
    ]


def carved_configs(vocabulary: int, own_weights: str, text: str = "") -> list[DrafterConfig]:
    """Smaller weights than the model's own, with the whole vocabulary and with its most frequent tokens."""
    weights = SMALL_WEIGHTS[SMALL_WEIGHTS.index(own_weights) + 1 :] if own_weights in SMALL_WEIGHTS else SMALL_WEIGHTS
    words = {"vocabulary_text": text} if text else {}
    return [
        DrafterConfig(f"{name}{told}", CARVED, "self", {"weights": name, **options, **(words if options else {})})
        for name in reversed(weights)
        for told, options in _heads(vocabulary)
    ]


def skip_configs(plans: Mapping[str, LayerPlan]) -> list[DrafterConfig]:
    """Named sets that leave something out."""
    return [
        DrafterConfig(
            f"skip {name}",
            SKIP,
            "self",
            {"skip_attention": tuple(sorted(plan.attention)), "skip_mlp": tuple(sorted(plan.mlp))},
        )
        for name, plan in plans.items()
        if plan.attention or plan.mlp
    ]


def hybrid_configs(copying: DrafterConfig, others: Iterable[DrafterConfig]) -> list[DrafterConfig]:
    """What copies where it finds a match, else one of the others."""
    return [
        DrafterConfig(
            f"{copying.name}, else {other.name}",
            HYBRID,
            "cascade",
            {"of": f"{copying.drafter},{other.drafter}", **copying.options, **other.options},
            (copying, other),
        )
        for other in others
    ]


def guessed_configs(suffix: DrafterConfig, others: Iterable[DrafterConfig]) -> list[DrafterConfig]:
    """Each of the others, whose forwards check what suffix guesses."""
    return [
        DrafterConfig(
            f"{other.name}, guessed by {suffix.name}",
            GUESSED,
            "guessed",
            {"of": other.drafter, **suffix.options, **other.options},
            (suffix, other),
        )
        for other in others
    ]


def branched_configs(methods: Sequence[str], others: Iterable[DrafterConfig]) -> list[DrafterConfig]:
    """Trees and graphs, those of them that are among the methods, of drafters with a law, in some sizes."""
    of_graph = {"m": RECURRING, "sibling": LEAST_OF_A_GRAPH, "leaf": LEAST_OF_A_GRAPH}
    return [
        DrafterConfig(
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


def with_rules(configs: Sequence[tuple[DrafterConfig, int]], count: int) -> list[Candidate]:
    """At most `count` candidates from drafters with their best draft lengths, the most promising one first.

    Each drafter is combined with its fixed length before any is combined with another policy. Trees and graphs only get
    their length: confidences limit them already.
    """
    fixed = [Candidate(config, "fixed", {"k": k}) for config, k in configs]
    chains = [config for config, _ in configs if config.method not in BRANCHED]
    rules = [Candidate(config, policy) for config in chains for policy in ("cost", "governor")]
    return [*fixed[: max(1, (count + 1) // 2)], *rules][:count]


def _heads(vocabulary: int) -> list[tuple[str, dict[str, Any]]]:
    """The whole vocabulary, and its frequent part if that is much smaller."""
    part = [(f", {SMALL_VOCABULARY} tokens", {"vocabulary": SMALL_VOCABULARY})]
    return [("", {}), *(part if vocabulary > 2 * SMALL_VOCABULARY else [])]
