"""What drafters are built from inside vLLM: facts of its model, read from the files, and draft models beside it.

vLLM keeps its own weights to itself, so a compact draft reads its target's embeddings and head once more.
"""

from __future__ import annotations

from typing import Any, final

import torch

from ...core.identity import Identity
from ...drafters.base import Parts, drafting_pool
from ...errors import UnsupportedOption
from ...models.files.locate import locate
from ...models.lean.runner import LeanRunner
from ...models.lean.tables_runner import TablesRunner, identity_in
from ...models.loading.load import open_model
from ...models.loading.tokenizer_files import read_tokenizer
from ...models.packed.plan import FULL, LayerPlan
from ...models.packed.pool import SequencePool
from ...models.packed.runner import HFRunner, Runner
from .settings import Served

FLOAT32 = 4  # bytes


@final
class Opened:
    """The parts, and the runners of the draft models that were opened from them."""

    def __init__(self, served: Served) -> None:
        directory = locate(served.model)
        if not directory.is_dir():
            raise UnsupportedOption(
                f"vLLM runs {directory}; forerun's draft model and corpus need its tokenizer from a directory of safetensors"
            )
        tokenizer = read_tokenizer(directory)
        vocabulary: dict[str, int] | None = None if tokenizer is None else tokenizer.get_vocab()
        self._served = served
        self._runners: list[Runner] = []
        target = TablesRunner(directory, served.config, served.dtype, torch.device(served.device))
        identity = identity_in(directory, served.config, vocabulary)
        self.parts = Parts(SequencePool(target), identity, vocabulary, self._load, open_pool=self._pool)

    @property
    def bytes_a_token(self) -> int:
        """Keys and values of a token in all draft models."""
        return sum(bytes_a_token(runner) for runner in {id(one): one for one in self._runners}.values())

    def _load(self, model: Any) -> tuple[SequencePool, dict[str, int] | None]:
        draft = open_model(model, dtype=self._served.dtype, device=self._served.device)
        return self._pool(draft.runner, draft.identity), draft.vocabulary

    def _pool(self, runner: Runner, identity: Identity | None = None, plan: LayerPlan = FULL) -> SequencePool:
        self._runners.append(runner)
        return drafting_pool(runner, identity, plan)


def bytes_a_token(runner: Runner) -> int:
    """Keys and values of a token of a sequence."""
    if isinstance(runner, LeanRunner):
        return 2 * FLOAT32 * runner.num_layers * runner.shape.kv_heads * runner.shape.head_dim
    assert isinstance(runner, HFRunner), "a draft model runs on one of these two"
    config = runner.model.config.get_text_config()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    numbers: int = 2 * runner.num_layers * heads * width
    return numbers * runner.dtype.itemsize
