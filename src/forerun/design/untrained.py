"""Models with random weights in a draft's shape, on the runner that forerun would use for a draft of the target.

The cost of a forward doesn't depend on the weights' values. Layers of one kind cost the same, so one deep model stands for
all shallower ones: they are its early exits.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from collections.abc import Sequence as Series
from dataclasses import replace
from typing import Any, final

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from ..core.drafter import Drafter
from ..core.forward import Rows
from ..core.values import Context, Step
from ..drafters.chain import chained
from ..engine.engine import Engine
from ..models.files.draft_shape import DraftShape, spread_layers
from ..models.files.locate import locate
from ..models.files.quiet import quiet
from ..models.gguf.convert import converted
from ..models.lean.runner import LeanRunner
from ..models.loading.load import dtype_of
from ..models.packed.plan import FULL, LayerPlan
from ..models.packed.runner import HFRunner, Runner
from ..models.packed.sequence import Sequence


def config_of(model: str, dtype: str | None = None, trust_remote_code: bool = False) -> Any:
    """The text configuration of a model that can be opened by this name in this dtype."""
    path = locate(model, trust_remote_code)
    directory = converted(path, dtype_of(dtype) or torch.bfloat16) if path.is_file() else path
    with quiet():
        read = AutoConfig.from_pretrained(directory, trust_remote_code=trust_remote_code, local_files_only=True)
    return read.get_text_config()


def untrained(config: Any, shape: DraftShape, engine: Engine, weights: str) -> Runner:
    """A runner of the shape's size, in the target's dtype, device, weights and activations; its head is whole.

    config: the target's. Raises UnsupportedOption where the shape is none of a draft's, or the weights have no such
    matrices.
    """
    shape.check(config)
    total = int(config.num_hidden_layers)
    own = shape.config(config, spread_layers(shape.layers, total))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(own, dtype=engine.runner.dtype).to(engine.runner.device).eval()
    if isinstance(engine.runner, LeanRunner):
        runner = LeanRunner.from_model(model, weights, shape.name)
        if runner.activations is not None and engine.runner.activations is not None:
            runner.use_activations(engine.runner.activations)
        return runner
    return HFRunner(model, shape.name)


def plan_of(runner: Runner, shape: DraftShape) -> LayerPlan:
    """The plan under which a model with as many layers or more costs what a draft of the shape does.

    Raises UnsupportedOption where this runner can't restrict its head.
    """
    head = "" if shape.vocabulary == runner.vocab_size else runner.add_head(range(shape.vocabulary))
    whole = shape.layers == runner.num_layers
    plan = replace(FULL if whole else LayerPlan.early_exit(shape.layers, runner.num_layers), head=head)
    runner.check_plan(plan)
    return plan


@final
class UntrainedDraft(Drafter):
    """Takes the time that a model of some shape would take to draft after the first `known` tokens. For measuring only."""

    branches = True

    def __init__(self, runner: Runner, plan: LayerPlan, known: int) -> None:
        self._sequence = Sequence(runner, drafting=True)
        self._plan, self._known = plan, known
        self._read = 0

    def draft(self, context: Context) -> AsyncGenerator[Step]:
        return chained(self, context)

    async def begin(self, context: Context) -> Rows | None:
        if self._sequence.ids != context.ids[: self._known]:
            await self._sequence.sync(context.ids[: self._known])
        self._sequence.drop()
        new = context.ids[self._known :]
        self._read = len(new)
        return await self._sequence.forward(new, plan=self._plan, want=1)

    async def read(self, ids: Series[int], given: int) -> Rows:
        await self._sequence.sync(ids[: given - 1])
        return await self._sequence.forward(ids[given - 1 :], plan=self._plan)

    async def extend(self, tokens: Series[int], parents: Series[int]) -> Rows | None:
        return await self._sequence.forward(tokens, [self._read + parent for parent in parents], self._plan)
