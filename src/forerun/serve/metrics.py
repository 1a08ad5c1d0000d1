"""Numbers for Prometheus, under vLLM's names with our prefix. All are counted on the event loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final
from weakref import WeakKeyDictionary

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from .worker.update import Ticket, Update

PREFIX = "forerun:"
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
# off: the request wants no drafts, so neither policy nor drafter was asked
DECISIONS = DRAFTED, HELD_BACK, NOTHING_FOUND, OFF = "drafted", "held_back", "nothing_found", "off"
TOKEN_SECONDS = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)


@final
class Metrics:
    def __init__(self, model: str, running: Callable[[], float], waiting: Callable[[], float]) -> None:
        self.registry = CollectorRegistry()

        def counter(name: str, help: str, *labels: str) -> Counter:
            return Counter(PREFIX + name, help, ("model_name", *labels), registry=self.registry)

        def times(name: str, help: str, buckets: Sequence[float] = SECONDS) -> Histogram:
            return Histogram(PREFIX + name, help, ("model_name",), registry=self.registry, buckets=buckets).labels(
                model
            )

        self._model = model
        for name, help, value in (
            ("num_requests_running", "Answers that share forwards.", running),
            ("num_requests_waiting", "Answers that wait for room.", waiting),
        ):
            Gauge(PREFIX + name, help, ("model_name",), registry=self.registry).labels(model).set_function(value)
        self._prompt = counter("prompt_tokens", "Tokens of prompts.").labels(model)
        self._written = counter("generation_tokens", "Tokens written.").labels(model)
        self._ended = counter("request_success", "Answers by how they ended.", "finished_reason")
        self._failed = counter("request_failure", "Answers that failed or whose client left.", "reason")
        self._first = times("time_to_first_token_seconds", "From the request to its first token.")
        self._queued = times("request_queue_time_seconds", "From the request to its first forward.")
        self._whole = times("e2e_request_latency_seconds", "From the request to its last token.")
        self._gap = times(
            "inter_token_latency_seconds", "Between two rounds of an answer, which may have several tokens."
        )
        self._each = times("request_time_per_output_token_seconds", "After the first token, a token.", TOKEN_SECONDS)
        self._drafts = counter("spec_decode_num_drafts", "Rounds with a draft.").labels(model)
        self._drafted = counter("spec_decode_num_draft_tokens", "Drafted tokens.").labels(model)
        self._accepted = counter("spec_decode_num_accepted_tokens", "Accepted drafted tokens.").labels(model)
        self._places = counter(
            "spec_decode_num_accepted_tokens_per_pos", "Accepted drafted tokens by place in the draft.", "position"
        )
        decided = counter("rounds", "Rounds after the first token by what was decided about drafts.", "decision")
        self._decided = {name: decided.labels(model, name) for name in DECISIONS}
        self._times: WeakKeyDictionary[Ticket, tuple[float, float]] = WeakKeyDictionary()

    def text(self) -> bytes:
        return generate_latest(self.registry)

    def updated(self, ticket: Ticket, update: Update) -> None:
        if update.error is not None:
            self._failed.labels(self._model, "error").inc()
            return
        self._timed(ticket, update)
        if update.round:
            self._written.inc(update.tokens)
            if not update.prefill:
                self._rounds(update, ticket.job.speculates)
        if (result := update.result) is not None:
            self._ended.labels(self._model, result.finish_reason).inc()
            self._whole.observe(update.at - ticket.arrived)
            first, _ = self._times.pop(ticket, (update.at, update.at))
            if len(result.ids) > 1:
                self._each.observe((update.at - first) / (len(result.ids) - 1))

    def left(self, tickets: Sequence[Ticket]) -> None:
        """Clients that have gone before the end of their answers."""
        for ticket in tickets:
            if self._times.pop(ticket, None) is not None:
                self._failed.labels(self._model, "left").inc()

    def _timed(self, ticket: Ticket, update: Update) -> None:
        if not update.round:
            return
        if ticket not in self._times:
            self._prompt.inc(ticket.job.context.prompt_length)
            self._first.observe(update.at - ticket.arrived)
            self._queued.observe((ticket.started or update.at) - ticket.arrived)
            self._times[ticket] = update.at, update.at
        else:
            first, last = self._times[ticket]
            self._gap.observe(update.at - last)
            self._times[ticket] = first, update.at

    def _rounds(self, update: Update, speculates: bool) -> None:
        if not update.draft:
            undrafted = HELD_BACK if update.held_back else NOTHING_FOUND
            self._decided[undrafted if speculates else OFF].inc()
            return
        self._decided[DRAFTED].inc()
        self._drafts.inc()
        self._drafted.inc(len(update.draft))
        self._accepted.inc(len(update.path))
        for place in range(len(update.path)):
            self._places.labels(self._model, str(place)).inc()
