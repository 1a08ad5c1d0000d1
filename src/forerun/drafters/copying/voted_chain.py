"""A draft of the tokens that win the votes, for as long as the whole of it is likely enough."""

from __future__ import annotations

from typing import final

from ...core.values import Round, Step
from .continuations import Continuations, Vote
from .vote_acceptance import VoteAcceptance


@final
class VotedChain:
    """One round's. least: the probability down to which the whole draft goes on."""

    def __init__(self, continuations: Continuations, acceptance: VoteAcceptance, least: float) -> None:
        self._continuations = continuations
        self._acceptance = acceptance
        self._least = least
        self._likely = 1.0
        self._votes: list[Vote] = []  # the drafted ones, and the one that ended the draft

    def next(self) -> Step | None:
        """The next token with its confidence, None where the draft ends."""
        vote = self._continuations.next()
        if vote is None:
            return None
        place = len(self._votes)
        confidence = self._acceptance.of(vote, place)
        self._votes.append(vote)
        self._likely *= confidence
        if self._likely < self._least:
            return None
        return Step((vote.token,), (place - 1,), (None,), confidence=confidence)

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
