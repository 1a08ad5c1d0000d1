"""A table of the model's own n-grams guesses: what most often followed the text's last tokens in answers of this model.

`forerun train ngrams` counts answers once: of each context of up to four tokens the most frequent follower, and how often
such followers were right in answers that were held out. Most of what a model writes about anything it has written before,
so this finds tokens where the text has nothing to copy from, and costs no forward.

Source: Ou et al., ANPD, arXiv 2404.08698 (n-grams of the text itself); the table of the model's own answers is forerun's.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import final

from ..core.drafter import Drafter
from ..core.forward import Rows
from ..core.learned import Learning
from ..core.values import Context, Round, Step
from .base import DRAFTERS, DrafterFactory, Parts
from .copying.continuations import Continuations
from .copying.ngram_votes import NgramVotes, open_votes
from .copying.vote_acceptance import VoteAcceptance
from .copying.voted_chain import VotedChain, check_least


@final
class Ngrams(Drafter):
    """table and acceptance are shared by the requests of an engine."""

    copies = True

    def __init__(self, table: NgramVotes, acceptance: VoteAcceptance, least: float) -> None:
        self._table, self._acceptance, self._least = table, acceptance, least
        self._chain: VotedChain | None = None

    async def draft(self, context: Context) -> AsyncGenerator[Step]:
        nowhere = Continuations((), ())
        chain = self._chain = VotedChain(nowhere, self._acceptance, self._least, self._table, context.ids)
        while (step := chain.next()) is not None:
            yield step

    def learn(self, context: Context, round: Round, rows: Rows) -> None:
        if self._chain is not None:
            self._chain.learn(round)
        self._chain = None


@DRAFTERS("ngrams", source="forerun; n-grams as drafts: Ou et al., ANPD, arXiv 2404.08698")
def build(parts: Parts, *, table: str, least: float = 0.15) -> DrafterFactory:
    """Guess what most often followed the last tokens in the model's own answers; costs no forward.

    table: a directory of `forerun train ngrams`, or the name of a known one. least: the probability down to which a whole
    draft goes on.
    """
    check_least(least)
    votes, acceptance = open_votes(table, parts.identity), VoteAcceptance()
    return Learning(lambda target: Ngrams(votes, acceptance, least), {"acceptance": acceptance})
