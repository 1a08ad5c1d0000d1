"""Suffix drafting: copy what followed the longest match of the text's end, as its earlier places vote.

Places in prompt and output, and in earlier answers of the engine, vote for the next token, each with the length of its
match. How often votes of such length and share were accepted is counted, and gives every token a confidence. The draft goes
on while all of it is likely enough, so sure matches draft far and doubtful ones little.

Sources: Oliaro et al., SuffixDecoding, arXiv 2411.04975; Hu et al., SAM Decoding, arXiv 2411.10666.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from collections.abc import Sequence as Series
from typing import final

from ..core.drafter import Drafter
from ..core.forward import Rows
from ..core.learned import Learning
from ..core.values import Context, Round, Step
from .base import DRAFTERS, DrafterFactory, Parts
from .copying.continuations import Continuations
from .copying.history import History
from .copying.ngram_votes import NgramVotes, open_votes
from .copying.text_index import LONGEST, Match, TextIndex, keys_of
from .copying.vote_acceptance import VoteAcceptance
from .copying.voted_chain import VotedChain, check_least

WORTH_ASKING = 2  # tokens: of a longer match, shorter ones are heard too


@final
class Suffix(Drafter):
    """acceptance and history are shared by the requests of an engine."""

    copies = True

    def __init__(
        self, acceptance: VoteAcceptance, history: History, least: float, table: NgramVotes | None = None
    ) -> None:
        self._acceptance = acceptance
        self._history = history
        self._least = least
        self._table = table
        self._index = TextIndex()
        self._tokens: set[int] = set()  # of the text but for the last one, and how many they are
        self._known = 0
        self._context: Context | None = None
        self._chain: VotedChain | None = None
        self._first: Step | None = None
        self._asked = False  # whether chain and first are of the round that is being drafted

    def begins(self, context: Context) -> bool:
        self._context, self._asked = context, True
        self._chain = self._voted(self._matches(context), context.ids)
        self._first = None if self._chain is None else self._chain.next()
        return self._first is not None

    async def draft(self, context: Context) -> AsyncGenerator[Step]:
        step = self._first if self._asked or self.begins(context) else None
        self._asked = False
        chain = self._chain
        while step is not None and chain is not None:
            yield step
            step = chain.next()

    def guess(self, context: Context, drafted: Series[int], most: int) -> Series[int]:
        chain: VotedChain | None
        if not drafted:
            self.begins(context)
            self._asked = False
            first, chain = self._first, self._chain
        else:
            ended = [*context.ids[-LONGEST:], *drafted]
            chain = self._voted(self._found(ended), ended)
            first = chain.next() if chain is not None else None
        guesses: list[int] = []
        while first is not None and chain is not None:
            guesses += first.tokens
            first = chain.next() if len(guesses) < most else None
        return guesses

    def _voted(self, matches: list[Match], text: list[int]) -> VotedChain | None:
        """A round's draft from these places, None where there is nothing to draft from."""
        table = self._table
        if not matches and table is None:
            return None
        find = self._found if table is not None else None
        return VotedChain(Continuations(matches, text), self._acceptance, self._least, table, text, find)

    def _matches(self, context: Context) -> list[Match]:
        ids = context.ids
        self._tokens.update(ids[self._known : -1])
        self._known = len(ids) - 1
        return self._found(ids, ids)

    def _found(self, ids: list[int], text: list[int] | None = None) -> list[Match]:
        """Where the end of ids stood before: the longest matches of the text itself and of the history.

        text: what is indexed, where places may run on into its newest tokens.
        """
        last, history = ids[-1], self._history
        own, earlier = last in self._tokens, not history.empty and history.knows(last)
        if not (own or earlier):
            return []
        if own and self._context is not None:
            # without the last token, which would be a match of itself; many at once, since most rounds find nothing
            self._index.extend(self._context.ids[len(self._index) : -1])
        end = ids[-LONGEST:]
        keys = keys_of(end)
        found = self._index.matches(end, keys, text) if own else []
        if earlier:
            found += self._history.matches(end, keys)
        if len(found) < 2:
            return found
        least = min(max([match.length for match in found]), WORTH_ASKING)
        # one token alone says little where another place knows more of them
        return found if least == 1 else [match for match in found if match.length >= least]

    def learn(self, context: Context, round: Round, rows: Rows) -> None:
        if self._chain is not None:
            self._chain.learn(round)
            self._chain = self._first = None
        self._asked = False

    def close(self) -> None:
        if self._context is not None and self._context.remember:
            self._history.add(self._context.ids[self._context.prompt_length :])


@DRAFTERS("suffix", source="Oliaro et al., SuffixDecoding, arXiv 2411.04975; Hu et al., SAM Decoding, arXiv 2411.10666")
def build(parts: Parts, *, least: float = 0.15, history: int = 100_000, ngrams: str = "") -> DrafterFactory:
    """Copy what followed the longest match of the text's end, in this text and in earlier answers; costs no forward.

    least: the probability down to which a whole draft goes on. history: tokens of earlier answers that are kept, 0 for none;
    they are seen by later requests of the same engine only, which they make faster and never change. ngrams: a table of
    `forerun train ngrams`, by its directory or known name, asked where the text is less sure.
    """
    check_least(least)
    if history < 0:
        raise ValueError(f"history must be at least 0 tokens, got {history}")
    acceptance, earlier = VoteAcceptance(), History(history)
    table = open_votes(ngrams, parts.identity) if ngrams else None
    return Learning(lambda target: Suffix(acceptance, earlier, least, table), {"acceptance": acceptance})
