"""What holds for every draft that something was carved off, whoever drafts."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from forerun import Engine
from forerun.testing import save_tiny

PROMPTS = ("to be or not to be", "a", "one two three one two")


def save_carvable(path: Path) -> Path:
    """A tiny model with widths of whole groups, so that 4-bit weights fit."""
    return save_tiny(path, intermediate_size=64)


def only_token_250(ids: Tensor, scores: Tensor) -> Tensor:
    """A processor that leaves nothing of a vocabulary of the first 100 tokens."""
    return scores + torch.full_like(scores, -torch.inf).index_fill_(1, torch.tensor([250]), 0.0)


def check_text(plain: Engine, engine: Engine) -> None:
    """Alone and together its texts are plain decoding's, and it did draft."""
    wanted = [plain.generate(prompt, max_new_tokens=20).ids for prompt in PROMPTS]
    assert [engine.generate(prompt, max_new_tokens=20).ids for prompt in PROMPTS] == wanted
    together = engine.generate(list(PROMPTS), max_new_tokens=20)
    assert [result.ids for result in together] == wanted
    assert sum(result.stats.drafted for result in together) > 0


def check_seeds(engine: Engine) -> None:
    """A seeded sample is the same alone and in a batch."""
    sampling = {"temperature": 0.9, "top_k": 30, "seed": 5, "max_new_tokens": 16}
    alone = [engine.generate(prompt, **sampling).ids for prompt in PROMPTS]
    assert [result.ids for result in engine.generate(list(PROMPTS), **sampling)] == alone
