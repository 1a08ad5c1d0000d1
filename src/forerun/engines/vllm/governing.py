"""The governor by load: what pays for one request may lose time for sixteen, so each load has an account of its own.

A forward's time belongs to all its requests, so the account judges whole rounds: the mean of the tokens that the requests
got against the round's time in plain rounds of as many requests.
"""

from __future__ import annotations

from typing import final

from ...policies.governor import LossAccount
from .costs import BatchRound, load_of


@final
class LoadGovernor:
    """credit and loss as the policy governor has them, for each load."""

    def __init__(self, credit: float, loss: float) -> None:
        self._credit, self._loss = credit, loss
        self._accounts: dict[int, LossAccount] = {}

    def holds_back(self, requests: int) -> bool:
        """Whether nobody is to draft for the next round."""
        return self._account(requests).holds_back

    def learn(self, round: BatchRound, plain_seconds: float) -> None:
        """plain_seconds: what a plain round of as many requests takes."""
        account, emitted = self._account(round.requests), round.emitted / round.requests
        seconds = round.draft_seconds + round.seconds
        if round.held_back:
            account.learn_plain(emitted, seconds)
        else:
            account.judge(emitted, seconds / plain_seconds)

    def _account(self, requests: int) -> LossAccount:
        load = load_of(requests)
        if load not in self._accounts:
            self._accounts[load] = LossAccount(self._credit, self._loss)
        return self._accounts[load]
