"""Drafts from the user's own texts: what followed the longest match of the text's end there, as its places vote.

The texts lie in a directory that `forerun corpus build` made: tokens and a suffix array, mapped into memory, so processes
share them, and a search reads a few pages. How often votes of such length and share were accepted is counted, and gives
every token a confidence.

Source: He et al., REST, arXiv 2311.08252.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import final

from ..core.drafter import Drafter
from ..core.forward import Rows
from ..core.values import Context, Round, Step
from .base import DRAFTERS, DrafterFactory, Parts
from .copying.continuations import Continuations
from .copying.vote_acceptance import VoteAcceptance
from .copying.voted_chain import VotedChain, check_least
from .corpora.files import open_corpus
from .corpora.ordering import LONGEST
from .corpora.places import Places


@final
class Corpus(Drafter):
    """places and acceptance are shared by the requests of an engine."""

    copies = True

    def __init__(self, places: Places, acceptance: VoteAcceptance, least: float) -> None:
        self._places = places
        self._acceptance = acceptance
        self._least = least
        self._chain: VotedChain | None = None

    async def draft(self, context: Context) -> AsyncGenerator[Step]:
        matches = self._places.matches(context.ids[-LONGEST:])
        if not matches:
            return
        chain = self._chain = VotedChain(Continuations(matches, ()), self._acceptance, self._least)
        while (step := chain.next()) is not None:
            yield step

    def learn(self, context: Context, round: Round, rows: Rows) -> None:
        if self._chain is not None:
            self._chain.learn(round)
        self._chain = None


@DRAFTERS("corpus", source="He et al., REST, arXiv 2311.08252")
def build(parts: Parts, *, path: str, least: float = 0.15) -> DrafterFactory:
    """Copy what followed the longest match of the text's end in texts of your own; costs no forward.

    path: the directory that `forerun corpus build MODEL FILES -o DIR` made for this model's tokenizer. least: the
    probability down to which a whole draft goes on.
    """
    check_least(least)
    places, acceptance = open_corpus(Path(path).expanduser(), parts.identity), VoteAcceptance()
    return lambda target: Corpus(places, acceptance, least)
