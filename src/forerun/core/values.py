"""The values passed between drafters, policies, verification and statistics.

N nodes of a draft, n nodes of a step, V vocabulary, D hidden width. A node is a drafted token; its parent is a
node, or ROOT, the pending token: the last one emitted, whose keys and values are not computed yet.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from torch import Tensor

from .chance import Chance
from .constraint import Constraint
from .law import Law

ROOT = -1

Processor = Callable[[Tensor, Tensor], Tensor]
FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class Signals:
    """The numbers that a policy may read from a step, for traces, which keep no logits.

    confidence as policies.base.confidence has it. The rest is of the raw row's softmax: its largest probability, its
    entropy in nats, its largest probabilities in descending order.
    """

    confidence: float
    best: float
    entropy: float
    top: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class DraftCounts:
    """Counts of a drafter's work.

    forwards: of the drafter. merged: nodes that copy another one. saved: rows of the drafter that needn't be computed, since
    the copied node has them. invalid: rows that were no law, where drafting ended. predicted: nodes of the answer that the
    request expects, which come before any others.
    """

    forwards: int = 0
    merged: int = 0
    saved: int = 0
    invalid: int = 0
    predicted: int = 0

    def __add__(self, other: DraftCounts) -> DraftCounts:
        if self is NO_COUNTS or other is NO_COUNTS:
            return other if self is NO_COUNTS else self
        return DraftCounts(
            self.forwards + other.forwards,
            self.merged + other.merged,
            self.saved + other.saved,
            self.invalid + other.invalid,
            self.predicted + other.predicted,
        )


NO_COUNTS = DraftCounts()


@dataclass(frozen=True, slots=True)
class UnusedWork:
    """A drafter's work that led to no step: its counts, and the seconds of its forwards."""

    counts: DraftCounts = NO_COUNTS
    seconds: float = 0.0

    def __add__(self, other: UnusedWork) -> UnusedWork:
        return UnusedWork(self.counts + other.counts, self.seconds + other.seconds)


NO_WORK = UnusedWork()


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """n nodes that a drafter adds in one go: one for a chain, a level for a tree.

    laws[i] is the law that tokens[i] was *drawn* from; None says that it was *chosen*: by argmax, lookup or top-k, and
    always at temperature 0. logits [n, V] and hidden [n, D] are of the row that produced the token, the row whose input
    is the token's parent: signals for policies, never for verification. forward_seconds: what the row cost. signals, if
    given, replace the logits. confidence: how likely chosen tokens without a row are accepted, where the drafter knows.
    share: a single chosen token's probability in the softmax of its unprocessed row, where that is known already.
    drafted_by: which of several drafters made it, "" of one alone.
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    laws: tuple[Law | None, ...]
    logits: Tensor | None = None
    hidden: Tensor | None = None
    forward_seconds: float = 0.0
    signals: Signals | None = None
    counts: DraftCounts = NO_COUNTS
    confidence: float | None = None
    share: float | None = None
    drafted_by: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Draft:
    """N drafted nodes, parents before children. Node i is verified by row i + 1 of the target's forward."""

    tokens: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()
    laws: tuple[Law | None, ...] = ()
    counts: DraftCounts = NO_COUNTS

    def __post_init__(self) -> None:
        if not len(self.tokens) == len(self.parents) == len(self.laws):
            raise ValueError(
                f"a draft needs a parent and a law for each token, got {len(self.tokens)} tokens, "
                f"{len(self.parents)} parents, {len(self.laws)} laws"
            )
        for node, parent in enumerate(self.parents):
            if not ROOT <= parent < node:
                raise ValueError(f"draft node {node} has parent {parent}; it must lie in [{ROOT}, {node - 1}]")

    def __len__(self) -> int:
        return len(self.tokens)

    @classmethod
    def of(cls, steps: Sequence[Step], unused: DraftCounts = NO_COUNTS) -> Draft:
        if len(steps) == 1:
            step = steps[0]
            return cls(step.tokens, step.parents, step.laws, unused + step.counts)
        return cls(
            tuple([token for step in steps for token in step.tokens]),
            tuple([parent for step in steps for parent in step.parents]),
            tuple([law for step in steps for law in step.laws]),
            sum([step.counts for step in steps], unused),
        )


NOTHING = Draft()


@dataclass(frozen=True, slots=True)
class Verdict:
    """The accepted nodes, root to leaf, and their tokens followed by the one that the target added."""

    path: tuple[int, ...]
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Pack:
    """A forward that several requests shared: the rows of all, its seconds, and whether it read a long text as well."""

    requests: int
    rows: int
    seconds: float
    reading: bool = False


@dataclass(frozen=True, slots=True)
class Timing:
    """The wall-clock seconds of a round by part; in a batch, forward includes waiting for the others.

    draft: making the draft; draft_forward: the drafter's forwards in it. forward: the target's. decide: laws and
    acceptance; law: the laws in it. keep: committing the accepted rows. pack: the forward that it shared, if it did.
    """

    draft: float = 0.0
    draft_forward: float = 0.0
    forward: float = 0.0
    law: float = 0.0
    decide: float = 0.0
    keep: float = 0.0
    pack: Pack | None = None

    @property
    def verify(self) -> float:
        """Everything after the draft."""
        return self.forward + self.decide + self.keep


@dataclass(frozen=True, slots=True, eq=False)
class Round:
    """One round of the loop, its only event. tokens are the verdict's, cut after an end-of-sequence token.

    start is the number of tokens known before; the first round of a request is its prefill. logits [len(tokens), V] are
    the target's raw rows that the tokens came from, where the request asked for them. held_back: the policy asked for no
    draft at all. forced: the draft is what the request's constraint forces; policy and drafter weren't asked.
    """

    tokens: tuple[int, ...]
    draft: Draft
    verdict: Verdict
    start: int
    prefill: bool = False
    timing: Timing = Timing()
    logits: Tensor | None = None
    held_back: bool = False
    forced: bool = False


def _require(condition: bool, name: str, value: object, allowed: str) -> None:
    if not condition:
        raise ValueError(f"{name} must be {allowed}, got {value}")


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a row of logits becomes a law; sampling.law says in which order. The defaults are greedy decoding.

    Frequency and presence penalties count the emitted tokens, the repetition penalty and no_repeat_ngram also the prompt.
    processors are stateless functions in transformers' manner: (input ids [1, n], scores [1, V]) -> scores [1, V]. Of
    the same manner are before_penalties, and warpers, which see what is left after temperature and filters.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    no_repeat_ngram: int = 0
    processors: tuple[Processor, ...] = ()
    before_penalties: tuple[Processor, ...] = ()
    warpers: tuple[Processor, ...] = ()

    def __post_init__(self) -> None:
        # below that, scores / temperature leaves the range of float32
        warm = self.temperature == 0 or 1e-6 <= self.temperature < math.inf
        _require(warm, "temperature", self.temperature, "0 (greedy) or at least 1e-6")
        _require(self.top_k >= 0, "top_k", self.top_k, "at least 0 (0 keeps every token)")
        _require(0 < self.top_p <= 1, "top_p", self.top_p, "in (0, 1] (1 keeps every token)")
        _require(0 <= self.min_p <= 1, "min_p", self.min_p, "in [0, 1] (0 keeps every token)")
        _require(
            0 < self.repetition_penalty < math.inf, "repetition_penalty", self.repetition_penalty, "above 0 (1 is off)"
        )
        _require(
            math.isfinite(self.frequency_penalty), "frequency_penalty", self.frequency_penalty, "finite (0 is off)"
        )
        _require(math.isfinite(self.presence_penalty), "presence_penalty", self.presence_penalty, "finite (0 is off)")
        _require(self.no_repeat_ngram >= 0, "no_repeat_ngram", self.no_repeat_ngram, "at least 0 (0 is off)")

    @property
    def calls_processors(self) -> bool:
        """Whether processors see a row, which may count on the scores of all the target's tokens."""
        return bool(self.processors or self.before_penalties)

    @property
    def uses_history(self) -> bool:
        """Whether a row's law depends on the tokens before it, and not on its logits alone."""
        return bool(
            self.calls_processors
            or self.no_repeat_ngram
            or self.repetition_penalty != 1
            or self.frequency_penalty
            or self.presence_penalty
        )


def _one() -> int:
    return 1


@dataclass(slots=True)
class Context:
    """One request: the tokens so far (the last is pending), how to draw, where to stop. Only the loop extends ids.

    remember: drafters may keep the answer to draft later requests from. prediction: the answer that the caller expects.
    ahead: how many further steps of the draft are likely to be pulled, at least 1; the loop says so, and only speed
    depends on it. guess: at most so many tokens that may follow the ones drafted so far, for a drafter that checks
    guesses. constraint: what the answer may be; it moves with ids.
    """

    ids: list[int]
    chance: Chance
    sampling: Sampling = Sampling()
    max_new_tokens: int = 128
    max_length: int | None = None
    eos: frozenset[int] = frozenset()
    keep_logits: bool = False
    remember: bool = True
    prediction: Sequence[int] = ()
    ahead: Callable[[], int] = _one
    guess: Callable[[Sequence[int], int], Sequence[int]] | None = None
    constraint: Constraint | None = None
    prompt_length: int = field(init=False)

    def __post_init__(self) -> None:
        self.prompt_length = len(self.ids)
        _require(self.prompt_length > 0, "prompt", "an empty prompt", "at least one token")
        _require(self.max_new_tokens >= 0, "max_new_tokens", self.max_new_tokens, "at least 0")
        if self.max_length is not None and self.prompt_length > self.max_length:
            raise ValueError(
                f"the prompt has {self.prompt_length} tokens and the context holds {self.max_length}; shorten the prompt"
            )

    @property
    def room(self) -> int:
        """How many more tokens may be emitted."""
        most = self.prompt_length + self.max_new_tokens
        if self.max_length is not None and self.max_length < most:
            most = self.max_length
        return most - len(self.ids)

    @property
    def finish_reason(self) -> FinishReason | None:
        """ "stop" after an end-of-sequence token and where the constraint lets nothing follow, "length" when there is no
        room, None while the request runs.
        """
        if len(self.ids) > self.prompt_length and self.ids[-1] in self.eos:
            return "stop"
        if self.constraint is not None and self.constraint.complete:
            return "stop"
        return "length" if self.room <= 0 else None

    def allowed(self, drafted: tuple[int, ...]) -> Tensor | None:
        """Which tokens may follow ids and the drafted ones, bool [V]; None for all."""
        return None if self.constraint is None else self.constraint.allowed(drafted)

    def extend(self, tokens: Sequence[int]) -> tuple[int, ...]:
        """Emit tokens up to the first end of the text and the room there is; return what was emitted."""
        taken: tuple[int, ...] = ()
        for token in tokens[: self.room]:
            taken = (*taken, token)
            if token in self.eos or (self.constraint is not None and self.constraint.completes(taken)):
                break
        self.ids.extend(taken)
        if self.constraint is not None:
            self.constraint.emit(taken)
        return taken
