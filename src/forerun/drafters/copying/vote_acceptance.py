"""How likely a token that was voted for is accepted: counted by what is known of the vote, over all requests."""

from __future__ import annotations

from threading import Lock
from typing import Any, final

from ...core.learned import Learned, numbers
from .continuations import Vote

FADE = 0.999  # of what was counted, an outcome of the same kind
PRIOR = 4.0  # outcomes that the first guess counts as
MOST_KINDS = 1000
TABLE_SHARES = 8  # classes of a table's probabilities
# the first guess: a vote of one place after one token is right a third of the time (240 answers on Spec-Bench's prompts)
DOUBT, MOST_PLACES = 2.0, 3
Kind = tuple[int, int, int, int]


@final
class VoteAcceptance(Learned):
    """The share of accepted tokens by length of the match, share and number of votes, and place in the draft."""

    def __init__(self) -> None:
        self._counted: dict[Kind, tuple[float, float]] = {}
        self._lock = Lock()

    def of(self, vote: Vote, place: int) -> float:
        """Of a token at this place of a draft, given that those before it are accepted."""
        seen = vote.length * min(vote.places, MOST_PLACES)
        # of a table, the share is how likely such a token was
        guess = vote.share * seen / (seen + DOUBT) if seen else vote.share
        accepted, tried = self._counted.get(_kind(vote, place), (0.0, 0.0))
        return (accepted + PRIOR * guess) / (tried + PRIOR)

    def learn(self, votes: list[Vote], accepted: int) -> None:
        """A draft of these tokens had its first `accepted` ones accepted."""
        with self._lock:
            for place, vote in enumerate(votes[: accepted + 1]):
                kind = _kind(vote, place)
                right, tried = self._counted.get(kind, (0.0, 0.0))
                self._counted[kind] = FADE * right + (place < accepted), FADE * tried + 1

    def as_data(self) -> list[list[float]]:
        with self._lock:
            return [[*kind, *counted] for kind, counted in self._counted.items()]

    def recall(self, data: Any) -> None:
        if not isinstance(data, list):
            raise ValueError(f"no acceptances were kept in {str(data)[:40]}")
        counted: dict[Kind, tuple[float, float]] = {}
        for length, share, places, place, right, tried in (numbers(one, 6) for one in data[:MOST_KINDS]):
            counted[int(length), int(share), int(places), int(place)] = min(right, tried), tried
        with self._lock:
            self._counted = counted


def _kind(vote: Vote, place: int) -> Kind:
    _, part, places, length = vote
    length = length if length < 6 else 6 if length < 10 else 10
    if not places:
        return length, int(part * TABLE_SHARES), 0, place if place < 3 else 3
    share = 3 if part == 1 else 2 if part >= 0.7 else 1 if part >= 0.4 else 0
    return length, share, places if places < MOST_PLACES else MOST_PLACES, place if place < 3 else 3
