"""How likely a token that was voted for is accepted: counted by what is known of the vote, over all requests."""

from __future__ import annotations

from threading import Lock
from typing import final

from .continuations import Vote

FADE = 0.999  # of what was counted, an outcome of the same kind
PRIOR = 4.0  # outcomes that the first guess counts as
Kind = tuple[int, int, int, int]


@final
class VoteAcceptance:
    """The share of accepted tokens by length of the match, share and number of votes, and place in the draft."""

    def __init__(self) -> None:
        self._counted: dict[Kind, tuple[float, float]] = {}
        self._lock = Lock()

    def of(self, vote: Vote, place: int) -> float:
        """Of a token at this place of a draft, given that those before it are accepted."""
        guess = vote.share * vote.length / (vote.length + 1)
        accepted, tried = self._counted.get(_kind(vote, place), (0.0, 0.0))
        return (accepted + PRIOR * guess) / (tried + PRIOR)

    def learn(self, votes: list[Vote], accepted: int) -> None:
        """A draft of these tokens had its first `accepted` ones accepted."""
        with self._lock:
            for place, vote in enumerate(votes[: accepted + 1]):
                kind = _kind(vote, place)
                right, tried = self._counted.get(kind, (0.0, 0.0))
                self._counted[kind] = FADE * right + (place < accepted), FADE * tried + 1


def _kind(vote: Vote, place: int) -> Kind:
    length = vote.length if vote.length < 6 else 6 if vote.length < 10 else 10
    share = 3 if vote.share == 1 else 2 if vote.share >= 0.7 else 1 if vote.share >= 0.4 else 0
    return length, share, min(vote.places, 3), min(place, 3)
