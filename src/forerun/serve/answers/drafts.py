"""What a round drafted and what came of it, for a client that shows it (return_drafts)."""

from __future__ import annotations

from typing import Any, final

from ..worker.update import Update
from .logprobs import TokenTexts


@final
class DraftView:
    """The rounds of one answer. seconds: since the last round, or since the request came."""

    def __init__(self, texts: TokenTexts, begun: float) -> None:
        self._texts = texts
        self._last = begun
        self._round = 0

    def of(self, update: Update) -> dict[str, Any]:
        seconds, self._last = update.at - self._last, update.at
        accepted = set(update.path)
        shown = {
            "drafted": [
                {"text": self._texts[token], "accepted": node in accepted} for node, token in enumerate(update.draft)
            ],
            "emitted": [{"text": piece.text, "drafted": piece.drafted} for piece in update.pieces if piece.text],
            "round": self._round,
            "seconds": round(seconds, 6),
        }
        self._round += update.round
        return shown
