"""The class that vLLM's method custom_class calls for drafts.

    vllm serve MODEL --speculative-config '{"method": "custom_class", "model": "forerun.engines.vllm.Proposer",
        "num_speculative_tokens": 8}' --additional-config '{"forerun": {"drafter": {"name": "suffix"}}}'

vLLM verifies drafts as chosen tokens, so whatever is drafted, its output follows the target's law.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, final

from .drafting import LOG
from .method import method_of
from .rounds import Rounds
from .settings import settings_of
from .verification import settle_verification


@final
class Proposer:
    """vllm_config: vLLM's whole configuration. Raises UnsupportedOption or ValueError on what forerun can't do with it."""

    def __init__(self, vllm_config: Any) -> None:
        settings = settings_of(vllm_config)
        method = method_of(settings.system, settings.longest, settings.served, settings.draft_memory)
        self._rounds = Rounds(method, settings)
        self._failed = False
        log = logging.getLogger(LOG)
        settle_verification(log)
        log.info(
            "forerun drafts by %s under %s, up to %d tokens",
            settings.system.drafter,
            settings.system.policy,
            settings.longest,
        )
        if method.most_held is not None:
            log.info(
                "the draft model keeps keys and values of at most %d tokens (%.3g GiB)",
                method.most_held,
                settings.draft_memory,
            )

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        """vLLM asks every proposer to load its model; this one has done so, where it has one."""

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
