"""A whole training run of an exit adapter."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..engine import Engine
from ..models.adapter_file import AdapterShape
from ..models.identity import Identity
from ..models.load import Module
from .adapter import AdapterStudent, new_adapter
from .distil import Progress
from .distil_loss import Chosen
from .distil_run import Begin, DistilReport, DistilRun, distil
from .examples import Example
from .frozen import frozen_of


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
