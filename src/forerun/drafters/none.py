"""Plain decoding: the same loop with an empty draft."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import final

from ..core.drafter import Drafter
from ..core.values import Context, Step
from .base import DRAFTERS, DrafterFactory, Parts


@final
class NoDraft(Drafter):
    def begins(self, context: Context) -> bool:
        return False

    async def draft(self, context: Context) -> AsyncGenerator[Step]:
        return
        yield


@DRAFTERS("none", source="plain decoding")
def build(parts: Parts) -> DrafterFactory:
    """Draft nothing: one token a forward."""
    return lambda target: NoDraft()
