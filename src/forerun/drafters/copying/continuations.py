"""What follows the places that match a text, token by token, as a vote of these places.

Each place votes for the token that stands there with the length of its match. The places that voted for the chosen token go
on. A place in the text itself may run into what is being drafted: a loop goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, final

from .text_index import Match


@final
class Vote(NamedTuple):
    """The token that most places give. share: of all votes; places: how many gave it; length: of their longest match."""

    token: int
    share: float
    places: int
    length: int


@final
class Continuations:
    """text: the text that is continued, whose own places see the tokens drafted so far after its end."""

    def __init__(self, matches: Sequence[Match], text: Sequence[int]) -> None:
        self._matches = matches
        self._text = text
        self._drafted: list[int] = []

    def vote(self) -> Vote | None:
        """The next token; None where no place goes on."""
        ahead = len(self._drafted)
        if len(self._matches) == 1:
            match = self._matches[0]
            token = self._token(match, ahead)
            return None if token is None else Vote(token, 1.0, 1, match.length + ahead)
        votes: dict[int, int] = {}
        voters: dict[int, list[Match]] = {}
        for match in self._matches:
            token = self._token(match, ahead)
            if token is not None:
                votes[token] = votes.get(token, 0) + match.length + ahead
                voters.setdefault(token, []).append(match)
        if not votes:
            return None
        best = max(votes, key=votes.__getitem__)
        longest = max([match.length for match in voters[best]]) + ahead
        return Vote(best, votes[best] / sum(votes.values()), len(voters[best]), longest)

    def go_on(self, token: int) -> bool:
        """This token is drafted; whether any place goes on with it."""
        ahead = len(self._drafted)
        self._matches = [match for match in self._matches if self._token(match, ahead) == token]
        self._drafted.append(token)
        return bool(self._matches)

    def _token(self, match: Match, ahead: int) -> int | None:
        """What stands so many tokens after a match."""
        place = match.place + ahead
        if place < len(match.ids):
            token = match.ids[place]
            return token if token >= 0 else None
        after = place - len(self._text)
        own = match.ids is self._text and after < len(self._drafted)
        return self._drafted[after] if own else None
