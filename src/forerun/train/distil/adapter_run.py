"""A whole training run of an exit adapter."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...core.identity import Identity
from ...engine.engine import Engine
from ...models.files.adapter import AdapterShape
from ...models.loading.load import Module
from ..data.examples import Example
from .adapter import AdapterStudent, new_adapter
from .frozen import frozen_of
from .loop import Progress
from .loss import Chosen
from .run import DistilReport, DistilRun, distil
from .steps import Begin


def train_adapter(
    run: DistilRun[AdapterShape],
    module: Module,
    identity: Identity,
    engine: Callable[[], Engine],
    begin: Begin,
    log: Callable[[Progress], None],
) -> DistilReport:
    """An adapter for this model; raises what distil raises."""
    frozen = frozen_of(module.model)

    def student(chosen: Chosen, examples: Sequence[Example]) -> AdapterStudent:
        adapter = new_adapter(run.shape, frozen, run.recipe.seed)
        return AdapterStudent(adapter, identity, frozen.embeddings, chosen.head)

    return distil(run, run.shape.exit_layer, student, frozen, identity, engine, begin, log)
