"""A draft of the tokens that win the votes, for as long as the whole of it is likely enough.

Where a table of the model's own n-grams is surer than the places of the text, its token is drafted. Where no place goes on
with that token, the text is searched again: for places that match its end and all that is drafted already.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

from ...core.values import Round, Step
from .continuations import Continuations, Vote
from .ngram_votes import NgramVotes
from .text_index import LONGEST, Match
from .vote_acceptance import VoteAcceptance

SURE = 0.8  # places of the text that are surer are not compared with a table

Find = Callable[[list[int]], list[Match]]


def check_least(least: float) -> None:
    """Raise ValueError unless it is a probability that a draft can end at."""
    if not 0 < least < 1:
        raise ValueError(f"least must be above 0 and below 1, got {least}")


@final
class VotedChain:
    """One round's. least: the probability down to which the whole draft goes on.

    table: asked too; text: what it is asked about; find: the places that match the end of such a text. Without a table the
    draft ends where no place goes on.
    """

    def __init__(
        self,
        continuations: Continuations,
        acceptance: VoteAcceptance,
        least: float,
        table: NgramVotes | None = None,
        text: Sequence[int] = (),
        find: Find | None = None,
    ) -> None:
        self._places = continuations
        self._acceptance = acceptance
        self._least = least
        self._table, self._find = table, find
        self._ended = [] if table is None else list(text[-LONGEST:])
        self._likely = 1.0
        self._votes: list[Vote] = []  # the drafted ones, and the one that ended the draft

    def next(self) -> Step | None:
        """The next token with its confidence, None where the draft ends."""
        place = len(self._votes)
        vote = self._places.vote()
        confidence = 0.0 if vote is None else self._acceptance.of(vote, place)
        if self._table is not None and confidence < SURE:
            known = self._table.after(self._ended)
            if known is not None and (likely := self._acceptance.of(known, place)) > confidence:
                vote, confidence = known, likely
        if vote is None:
            return None
        self._votes.append(vote)
        self._likely *= confidence
        if self._likely < self._least:
            return None
        self._go_on(vote.token)
        return Step((vote.token,), (place - 1,), (None,), confidence=confidence)

    def _go_on(self, token: int) -> None:
        goes_on = self._places.go_on(token)
        if self._table is None:
            return
        self._ended = [*self._ended, token]
        if not goes_on and self._find is not None:
            self._places = Continuations(self._find(self._ended), self._ended)

    def learn(self, round: Round) -> bool:
        """Whether the round's draft was this one, or its beginning.

        What was right is counted by the text, so a vote that was not verified, or not even drafted, teaches as much.
        """
        votes, written, drafted = self._votes, round.tokens, round.draft.tokens
        if not votes:
            return False
        right = 0
        for vote, token in zip(votes, written, strict=False):
            if vote.token != token:
                break
            right += 1
        self._acceptance.learn(votes[: len(written)], right)
        return list(drafted) == [vote.token for vote in votes[: len(drafted)]]
