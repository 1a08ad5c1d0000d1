"""Statistics of speculation, computed from rounds alone.

Names as in SpecDec++ (arXiv 2405.19715): discard rate = rejected drafted tokens per emitted token; verification rate =
target forwards per emitted token. Both leave the prefill and its token out, so they are properties of decoding alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, final

from ..core.values import NOTHING, ROOT, Draft, Round

COUNTS = (
    *("tokens", "rounds", "drafted", "accepted", "forced", "held_back", "switches"),
    *("draft_forwards", "merged", "rows_saved", "invalid_rows", "predicted", "predicted_accepted", "_first_tokens"),
)
SECONDS = (
    "prefill_seconds",
    "draft_seconds",
    "draft_forward_seconds",
    "verify_seconds",
    "forward_seconds",
    "native_seconds",
    "law_seconds",
    "keep_seconds",
)


@final
class Stats:
    """Counts and times of the rounds seen so far.

    forced: accepted tokens of drafts that a grammar forced. held_back: rounds for which the policy asked for no draft;
    switches: how often a request changed to such rounds or back. draft_forwards, merged, rows_saved and invalid_rows
    add up DraftCounts, forwards that gave no step included; drafted counts the nodes that were verified, merged ones
    among them. predicted: those of them that came from the answer that the request expects, predicted_accepted:
    accepted ones of these.
    """

    def __init__(self, rounds: Iterable[Round] = ()) -> None:
        self.tokens = 0
        self.rounds = 0
        self.drafted = 0
        self.accepted = 0
        self.forced = 0
        self.held_back = 0
        self.switches = 0
        self.draft_forwards = 0
        self.merged = 0
        self.rows_saved = 0
        self.invalid_rows = 0
        self.predicted = 0
        self.predicted_accepted = 0
        self.prefill_seconds = 0.0
        self.draft_seconds = 0.0
        self.draft_forward_seconds = 0.0
        self.verify_seconds = 0.0
        self.forward_seconds = 0.0
        self.native_seconds = 0.0
        self.law_seconds = 0.0
        self.keep_seconds = 0.0
        self._tried: Counter[int] = Counter()
        self._right: Counter[int] = Counter()
        self._first_tokens = 0
        self._holding: bool | None = None
        for round in rounds:
            self.add(round)

    def add(self, round: Round, native: float = 0.0) -> None:
        """Add one round; the first round of a request is its prefill. native: its seconds inside native code."""
        self.tokens += len(round.tokens)
        if round.prefill:
            self._holding = None
            self._first_tokens += len(round.tokens)
            self.prefill_seconds += round.timing.verify
            return
        timing, held_back = round.timing, round.held_back
        self.rounds += 1
        self.held_back += held_back
        self.switches += self._holding is not None and self._holding != held_back
        self._holding = held_back
        self.draft_seconds += timing.draft
        self.draft_forward_seconds += timing.draft_forward
        self.verify_seconds += timing.verify
        self.forward_seconds += timing.forward
        self.native_seconds += native
        self.law_seconds += timing.law
        self.keep_seconds += timing.keep
        if round.draft is not NOTHING:
            self._add_draft(round)

    def _add_draft(self, round: Round) -> None:
        counts, accepted = round.draft.counts, len(round.verdict.path)
        self.draft_forwards += counts.forwards
        self.invalid_rows += counts.invalid
        self.drafted += len(round.draft)
        self.accepted += accepted
        self.forced += accepted if round.forced else 0
        self.merged += counts.merged
        self.rows_saved += counts.saved
        self.predicted += counts.predicted
        self.predicted_accepted += min(counts.predicted, accepted)
        for depth in range(_levels_tried(round.draft, round.verdict.path)):
            self._tried[depth] += 1
            self._right[depth] += depth < accepted

    def merge(self, other: Stats) -> None:
        """Add another request's counts to these."""
        for name in (*COUNTS, *SECONDS):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self._tried.update(other._tried)
        self._right.update(other._right)

    @property
    def decoded(self) -> int:
        """Emitted tokens after the prefill's own."""
        return self.tokens - self._first_tokens

    @property
    def rows_verified(self) -> int:
        """Rows of the target's forwards without the prefill: each round's pending token and its draft."""
        return self.drafted + self.rounds

    @property
    def tokens_per_round(self) -> float:
        return _ratio(self.decoded, self.rounds)

    @property
    def acceptance(self) -> float:
        """Accepted over drafted nodes; drafts after a rejection count as rejected."""
        return _ratio(self.accepted, self.drafted)

    @property
    def acceptance_per_position(self) -> tuple[float, ...]:
        """For each position of a draft: how often it was right, given that all before it were."""
        return tuple(self._right[depth] / self._tried[depth] for depth in sorted(self._tried))

    @property
    def discard_rate(self) -> float:
        return _ratio(self.drafted - self.accepted, self.decoded)

    @property
    def verification_rate(self) -> float:
        return _ratio(self.rounds, self.decoded)

    @property
    def decode_seconds(self) -> float:
        return self.draft_seconds + self.verify_seconds

    def as_dict(self) -> dict[str, Any]:
        return {
            "tokens": self.tokens,
            "rounds": self.rounds,
            "drafted": self.drafted,
            "accepted": self.accepted,
            "forced": self.forced,
            "held_back": self.held_back,
            "switches": self.switches,
            "draft_forwards": self.draft_forwards,
            "merged": self.merged,
            "rows_saved": self.rows_saved,
            "invalid_rows": self.invalid_rows,
            "predicted": self.predicted,
            "predicted_accepted": self.predicted_accepted,
            "rows_verified": self.rows_verified,
            "tokens_per_round": self.tokens_per_round,
            "acceptance": self.acceptance,
            "acceptance_per_position": list(self.acceptance_per_position),
            "discard_rate": self.discard_rate,
            "verification_rate": self.verification_rate,
            **{name: getattr(self, name) for name in SECONDS},
        }


def _levels_tried(draft: Draft, path: tuple[int, ...]) -> int:
    """How many levels verification looked at: those accepted, and one more if the last accepted node has children."""
    last = path[-1] if path else ROOT
    return len(path) + (last in draft.parents)


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
