"""What a request's answers took: usage as OpenAI has it, and speculation as vLLM has it."""

from __future__ import annotations

from collections import Counter
from typing import Any, final

from ...engine.answer import Result
from ..worker.update import Update


@final
class Tally:
    """Counts over the answers of one request."""

    def __init__(self, prompt_tokens: int) -> None:
        self._prompt_tokens = prompt_tokens
        self._written = self._drafted = self._accepted = self._predicted = self._predicted_accepted = 0
        self._histogram: Counter[int] = Counter()

    def add(self, update: Update) -> None:
        if update.draft:
            self._histogram[len(update.path)] += 1
        if update.result is not None:
            self._end(update.result)

    def _end(self, result: Result) -> None:
        stats = result.stats
        self._written += len(result.ids)
        self._drafted += stats.drafted
        self._accepted += stats.accepted
        self._predicted += stats.predicted
        self._predicted_accepted += stats.predicted_accepted

    @property
    def usage(self) -> dict[str, Any]:
        return {
            "prompt_tokens": self._prompt_tokens,
            "completion_tokens": self._written,
            "total_tokens": self._prompt_tokens + self._written,
            "completion_tokens_details": {
                "accepted_prediction_tokens": self._predicted_accepted,
                "rejected_prediction_tokens": self._predicted - self._predicted_accepted,
            },
        }

    @property
    def metrics(self) -> dict[str, Any]:
        """num_spec_steps: rounds with a draft; acceptance_histogram: how many of these accepted 0, 1, 2... tokens."""
        steps = self._histogram.total()
        most = max(self._histogram, default=-1)
        return {
            "speculative_decoding": {
                "mean_acceptance_length": 1 + self._accepted / steps if steps else None,
                "draft_acceptance_rate": self._accepted / self._drafted if self._drafted else None,
                "acceptance_histogram": [self._histogram[count] for count in range(most + 1)],
                "num_spec_steps": steps,
                "num_draft_tokens": self._drafted,
                "num_accepted_draft_tokens": self._accepted,
            }
        }
