"""Predicted output: the caller expects a text (an edited file, a filled template), and the draft follows it.

The draft goes on in the prediction after the last accepted token. Where the output has left it, the draft begins again after
the longest match of the output's end, of several the nearest to where it left.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import final

from ..core.drafter import Drafter
from ..core.forward import Rows
from ..core.values import Context, DraftCounts, Round, Step
from .base import DRAFTERS, DrafterFactory, Parts
from .copying.continuations import Continuations
from .copying.text_index import LONGEST, Match, TextIndex
from .copying.vote_acceptance import VoteAcceptance
from .copying.voted_chain import VotedChain, check_least

LEAST = 0.15
PREDICTED = DraftCounts(predicted=1)


@final
class Prediction(Drafter):
    """Drafts nothing where the request has no prediction."""

    copies = True

    def __init__(self, least: float = LEAST) -> None:
        self._least = least
        self._acceptance = VoteAcceptance()
        self._index = TextIndex()
        self._left = 0  # place in the prediction up to which the output followed it
        self._chain: VotedChain | None = None

    async def draft(self, context: Context) -> AsyncGenerator[Step]:
        match = self._place(context)
        if match is None:
            return
        self._left = match.place
        chain = self._chain = VotedChain(Continuations([match], ()), self._acceptance, self._least)
        while (step := chain.next()) is not None:
            yield replace(step, counts=PREDICTED)

    def _place(self, context: Context) -> Match | None:
        self._index.extend(context.prediction[len(self._index) :])
        output = context.ids[max(context.prompt_length, len(context.ids) - LONGEST) :]
        matches = self._index.matches(output)
        longest = max((match.length for match in matches), default=0)
        best = [match for match in matches if match.length == longest]
        return min(best, key=lambda match: abs(match.place - self._left), default=None)

    def learn(self, context: Context, round: Round, rows: Rows) -> None:
        if self._chain is not None and self._chain.learn(round):
            self._left += len(round.verdict.path) + 1
        self._chain = None


@DRAFTERS("prediction", source="OpenAI, predicted outputs, 2024; lookup in a given text")
def build(parts: Parts, *, least: float = LEAST) -> DrafterFactory:
    """Follow the text that the request expects (its option `prediction`); costs no forward.

    A request with a prediction has it followed before any other drafter is asked, so this one is named only where nothing
    else shall draft. least: the probability down to which a whole draft goes on.
    """
    check_least(least)
    return lambda target: Prediction(least)
