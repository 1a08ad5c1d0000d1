"""Which of an engine's methods go on where the last start of forerun ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.learned import Learning, joined
from .learned_file import LearnedFile, owner_of, switched_off

if TYPE_CHECKING:
    from ..drafters.base import DrafterFactory
    from ..policies.base import PolicyFactory
    from .engine import Engine


def kept_for(engine: Engine, drafter: DrafterFactory, policy: PolicyFactory) -> tuple[LearnedFile | None, str]:
    """The file that keeps what is learnt, read already, and a line on what a drafter that chooses chose.

    None where the drafter or FORERUN_LEARNED say that nothing is kept.
    """
    if not isinstance(drafter, Learning) or not drafter.choice:
        return None, ""
    if not drafter.keep_as or switched_off():
        return None, drafter.choice
    owner = owner_of(engine.runner, engine.identity, drafter.keep_as)
    file = LearnedFile(engine.name, owner, joined(drafter=drafter, policy=policy))
    before = file.recall()
    file.write_at_the_end_of(engine)
    return file, f"{drafter.choice}; {'goes on from what it learnt before' if before else 'learns as it goes'}"
