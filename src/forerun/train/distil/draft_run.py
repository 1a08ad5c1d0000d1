"""A whole training run of a draft model: cut from the target, then trained on the target's distributions on its own answers.

The draft reads tokens alone, so all positions of a draft are alike, and one pass over a text trains them all. The target's
embeddings and head are frozen after the cut; the layers between them are trained.

Sources: Yan et al., arXiv 2402.01528, section 5; Kim and Rush, arXiv 1606.07947 (learning from the teacher's own text).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy, deepcopy
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor

from ...core.identity import Identity
from ...engine.engine import Engine
from ...models.files.draft import DraftFile, write_draft
from ...models.files.quiet import quiet
from ...models.loading.load import Module
from ...models.packed.layers import decoder_layers
from ..data.examples import Example
from ..sharding import spread
from .activation_statistics import TEXTS, collect_statistics
from .data import DistilBatch
from .draft_init import Cut, check_cut, narrower, new_draft
from .frozen import frozen_of
from .loop import Progress, Student
from .loss import Chosen
from .run import DistilReport, DistilRun, distil
from .steps import Begin


@final
class DraftStudent(Student):
    """A transformers model, whose embeddings and head are not trained."""

    def __init__(self, draft: Any, tokenizer: Any | None, tokens: Tensor) -> None:
        self.module = self._draft = draft
        self._tokenizer = tokenizer
        for table in (draft.get_input_embeddings(), draft.get_output_embeddings()):
            table.requires_grad_(False)
        self.head = draft.get_output_embeddings().weight.detach()[tokens]

    def passes(self, batch: DistilBatch, count: int) -> list[Tensor]:
        # rows are padded at the end, where a causal model doesn't look
        out = self._draft.base_model(input_ids=batch.ids[:, :-1], use_cache=False)
        return [out.last_hidden_state]

    def spread(self) -> DraftStudent:
        other = copy(self)
        other.module = other._draft = spread(self._draft, lambda draft: (*decoder_layers(draft), draft.base_model))
        return other

    def write(self, directory: Path, ranking: Tensor, trained: Mapping[str, Any]) -> None:
        with quiet():
            deepcopy(self._draft).to(torch.bfloat16).save_pretrained(directory)
            if self._tokenizer is not None:
                self._tokenizer.save_pretrained(directory)
        write_draft(DraftFile(ranking, len(self.head), trained), directory)


def train_draft(
    run: DistilRun[Cut],
    module: Module,
    identity: Identity,
    engine: Callable[[], Engine],
    begin: Begin,
    log: Callable[[Progress], None],
) -> DistilReport:
    """A draft for this model, as a bfloat16 checkpoint; raises what distil and check_cut raise."""
    config = module.model.config.get_text_config()
    check_cut(run.shape, config)

    def student(chosen: Chosen, examples: Sequence[Example]) -> DraftStudent:
        texts = [example.ids for example in examples[:TEXTS]] if narrower(run.shape.shape, config) else []
        seen = collect_statistics(module.model, texts, begin("looking what matters", len(texts))) if texts else None
        return DraftStudent(new_draft(module.model, run.shape, seen), module.tokenizer, chosen.tokens)

    frozen = frozen_of(module.model)
    return distil(run, int(config.num_hidden_layers), student, frozen, identity, engine, begin, log)
