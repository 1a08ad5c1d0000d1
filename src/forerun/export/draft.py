"""The first layers of a model as a model of its own, for engines that draft with a second model.

The first E layers, the final norm and the head become an ordinary checkpoint: num_hidden_layers is E, and every list in the
config that has an entry for each layer is cut. Before it is published, it must say what the early exit of the whole model
says, bit for bit: a family whose layers depend on how many there are is refused there. It is written under another name
and moved when complete.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..core.drive import drive
from ..errors import UnsupportedModel
from ..models.files.draft_shape import keep_layers
from ..models.files.quiet import quiet
from ..models.files.saved import published
from ..models.loading.load import Module, open_model, open_module
from ..models.packed.layers import decoder_layers
from ..models.packed.plan import FULL, LayerPlan
from ..models.packed.runner import Runner
from ..models.packed.sequence import Sequence

LENGTHS = (1, 7, 40)


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written: parameters and bytes are the draft's."""

    directory: Path
    exit_layer: int
    num_layers: int
    parameters: int
    bytes: int


def export_draft(model: str | Path, exit_layer: int, directory: Path, dtype: str | None = None) -> Exported:
    """Write the early exit of a model as a Hugging Face directory, with the tokenizer; in the model's dtype unless given.

    Raises ValueError where directory is there already or can't be written, or the model has no such exit layer,
    UnsupportedModel where cutting the family isn't exact, and what open_module raises.
    """
    if directory.exists() or directory.is_symlink():
        raise ValueError(f"{directory} is there already; name a directory that isn't")
    module = open_module(model, dtype=dtype, device="cpu")
    num_layers = len(decoder_layers(module.model))
    plan = LayerPlan.early_exit(exit_layer, num_layers)
    with published(directory, str(directory)) as partial:
        parameters = _write(module, exit_layer, partial)
        _check(module, plan, partial)
        size = sum(file.stat().st_size for file in partial.iterdir())
    return Exported(directory, exit_layer, num_layers, parameters, size)


def _write(module: Module, exit_layer: int, directory: Path) -> int:
    """Save the cut model and the tokenizer; the number of the cut model's parameters."""
    shared = {id(parameter): parameter for parameter in module.model.parameters()}
    cut = deepcopy(module.model, shared)
    layers = decoder_layers(cut)
    keep_layers(cut.config.get_text_config(), range(exit_layer))
    del layers[exit_layer:]
    with quiet():
        cut.save_pretrained(directory)
        if module.tokenizer is not None:
            module.tokenizer.save_pretrained(directory)
    return sum(parameter.numel() for parameter in cut.parameters())


def _check(module: Module, plan: LayerPlan, directory: Path) -> None:
    """Raise UnsupportedModel unless the draft's logits are those of the early exit. Leaves the model in float32."""
    whole = open_model(_placed_alike(module.model)).runner
    whole.check_plan(plan)
    try:
        own = open_module(directory, dtype=torch.float32, device="cpu").model
    except UnsupportedModel as error:
        raise UnsupportedModel(f"{module.name} can't be cut after layer {plan.exit_layer}: {error}") from error
    draft = open_model(_placed_alike(own)).runner
    for length in LENGTHS:
        ids = _text(whole, length)
        if not torch.equal(_logits(draft, ids, FULL), _logits(whole, ids, plan)):
            raise UnsupportedModel(
                f"{module.name} can't be cut after layer {plan.exit_layer}: its layers depend on how many there are, so "
                "the draft would not be the early exit; draft with --drafter self --exit-layer instead"
            )


def _placed_alike(model: Any) -> Any:
    """The model in float32, its parameters in memory of their own: kernels may round by how their inputs are aligned."""
    for parameter in model.parameters():
        parameter.data = parameter.data.float().clone()
    return model.float()


def _text(runner: Runner, length: int) -> list[int]:
    generator = torch.Generator().manual_seed(length)
    most = length if runner.max_length is None else min(length, runner.max_length)
    ids: list[int] = torch.randint(runner.vocab_size, (most,), generator=generator).tolist()
    return ids


def _logits(runner: Runner, ids: list[int], plan: LayerPlan) -> Tensor:
    async def rows() -> AsyncGenerator[Tensor]:
        yield (await Sequence(runner).forward(ids, plan=plan)).logits

    return next(drive(rows()))
