"""What the cost rule learns of all requests: regressions, costs, the price of time, and the budgets for trying."""

from __future__ import annotations

from threading import RLock
from typing import Any, final

from ..core.learned import Learned, numbers
from .acceptance_forecast import Beliefs
from .costs.step_costs import StepCosts
from .prompt_reading import AnswerLengths
from .usual_length import UsualLength

LONG = 0.995  # kept of the newest rounds' tokens and time, a round
MOST_SPARE = 1.0  # tokens that may be lost by trying at once


@final
class Rate:
    """Tokens and time, in plain rounds, of the newest rounds."""

    def __init__(self, keep: float) -> None:
        self._keep = keep
        self.tokens = self.time = 0.0

    def add(self, tokens: float, time: float) -> None:
        self.tokens = self._keep * self.tokens + tokens
        self.time = self._keep * self.time + time

    def rest(self, rounds: int) -> None:
        """So many plain rounds, of one token and as much time each."""
        kept = self._keep**rounds
        plain = (1 - kept) / (1 - self._keep)
        self.tokens = kept * self.tokens + plain
        self.time = kept * self.time + plain


@final
class SharedState(Learned):
    """What requests share: regressions, costs, the price of time, and the budgets for trying."""

    def __init__(self, costs: StepCosts) -> None:
        self.lock = RLock()  # requests of several threads share it
        self.costs = costs
        self.beliefs = Beliefs()
        self.rate = Rate(LONG)
        self.spare = 0.0
        self.lengths = AnswerLengths()
        self.usual = UsualLength()
        self.spare_for_reading = MOST_SPARE

    def as_data(self) -> dict[str, Any]:
        with self.lock:
            return {
                "beliefs": self.beliefs.as_data(),
                "costs": self.costs.as_data(),
                "lengths": self.lengths.as_data(),
                "rate": [self.rate.tokens, self.rate.time],
                "spare": [self.spare, self.spare_for_reading],
            }

    def recall(self, data: Any) -> None:
        if not isinstance(data, dict):
            raise ValueError(f"nothing that a rule learnt was kept in {str(data)[:40]}")
        beliefs, lengths = Beliefs(), AnswerLengths()
        beliefs.recall(data.get("beliefs"))
        lengths.recall(data.get("lengths"))
        tokens, time = numbers(data.get("rate"), 2)
        spare, for_reading = numbers(data.get("spare"), 2, -1e6)
        with self.lock:
            self.costs.recall(data.get("costs"))
            self.beliefs, self.lengths = beliefs, lengths
            self.rate.tokens, self.rate.time = tokens, time
            self.spare, self.spare_for_reading = min(spare, MOST_SPARE), for_reading
