"""The class that vLLM's method custom_class calls for drafts.

    vllm serve MODEL --speculative-config '{"method": "custom_class", "model": "forerun.engines.vllm.Proposer",
        "num_speculative_tokens": 8}' --additional-config '{"forerun": {"drafter": {"name": "suffix"}}}'

vLLM verifies drafts as chosen tokens, so whatever is drafted, its output follows the target's law.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, final

from .method import method_of
from .rounds import Rounds
from .settings import settings_of
from .verification import settle_verification

LOG = "vllm.forerun"  # vLLM shows what its own loggers say


@final
class Proposer:
    """vllm_config: vLLM's whole configuration. Raises UnsupportedOption or ValueError on what forerun can't do with it."""

    def __init__(self, vllm_config: Any) -> None:
        settings = settings_of(vllm_config)
        self._rounds = Rounds(method_of(settings.system, settings.longest), settings)
        self._failed = False
        log = logging.getLogger(LOG)
        settle_verification(log)
        log.info(
            "forerun drafts by %s under %s, up to %d tokens",
            settings.system.drafter,
            settings.system.policy,
            settings.longest,
        )

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        """vLLM asks every proposer to load its model; this one has none."""

    @property
    def in_flight(self) -> int:
        """Requests whose state is kept."""
        return self._rounds.in_flight

    def propose(
        self,
        sampled_token_ids: Sequence[Sequence[int]],
        num_tokens_no_spec: Any,
        token_ids_cpu: Any,
        slot_mappings: Any = None,
    ) -> list[list[int]]:
        """A draft for each row. vLLM has written the sampled tokens to the texts already; [] stands where a prompt is read.

        An error ends drafting, with the reason in vLLM's log, and vLLM decodes plainly from then on.
        """
        if self._failed:
            return [[] for _ in sampled_token_ids]
        try:
            sampled = [new if isinstance(new, list) else [int(token) for token in new] for new in sampled_token_ids]
            return self._rounds.next(sampled, num_tokens_no_spec, token_ids_cpu)
        except Exception:
            self._failed = True
            logging.getLogger(LOG).exception("forerun failed and drafts no more until vLLM is started again")
            return [[] for _ in sampled_token_ids]
