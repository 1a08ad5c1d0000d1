"""transformers' Trainer with LayerSkip's loss and dropout; with neither it is the plain Trainer."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, final

from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import Trainer, TrainerCallback

from ..sharding import load_optimiser, load_weights, optimiser_tensors, trained_weights
from .exit_loss import Exits, exit_loss
from .layer_dropout import LayerDropout
from .presets import Recipe

WEIGHTS, OPTIMISER, SCHEDULER = "weights.safetensors", "optimiser.safetensors", "scheduler.json"


@final
class Announcer(TrainerCallback):  # type: ignore[misc]
    """Hands the Trainer's steps and logs on."""

    def __init__(self, tick: Callable[[], None], log: Callable[[Mapping[str, Any]], None]) -> None:
        self._tick = tick
        self._log = log

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._tick()

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if state.is_world_process_zero:
            self._log({"step": state.global_step, **(logs or {})})


@final
class SkipTrainer(Trainer):  # type: ignore[misc]
    """Computes the loss by the recipe while training, and the model's own loss when judging.

    num_layers is L of the model, whose layers are wrapped while `run` runs. sharded: its weights and their states are
    spread over the processes, and gathered for checkpoints.
    """

    def __init__(self, recipe: Recipe, num_layers: int, sharded: bool = False, **given: Any) -> None:
        super().__init__(**given)
        self._recipe = recipe
        self._num_layers = num_layers
        self._exits = Exits(num_layers)
        self._dropout = LayerDropout(self.args.seed)
        self._micro = (-1, 0)
        self.sharded = sharded
        if sharded:
            self._shard()

    def run(self, resume: str | None) -> Any:
        """Train to the end, from a checkpoint on if there is one."""
        with ExitStack() as stack:
            if not self._recipe.ordinary:
                stack.enter_context(self._dropout.installed(self.model))
                stack.enter_context(self._exits.installed(self.model))
            return self.train(resume_from_checkpoint=resume)

    def _shard(self) -> None:
        """accelerate does this itself on accelerators; on CPUs it would silently hold everything in every process."""
        state = self.accelerator.state
        if getattr(state, "fsdp_plugin", None) is None:
            state.fsdp_plugin = FullyShardedDataParallelPlugin()
            state.distributed_type = DistributedType.FSDP
            self.is_fsdp_enabled = True

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Gathered, so that what is written doesn't depend on the number of processes."""
        if not self.sharded:
            super().save_model(output_dir, _internal_call)
            return
        tensors = trained_weights(self.model)
        if self.args.should_save:
            folder = Path(output_dir or self.args.output_dir)
            folder.mkdir(exist_ok=True)
            save_file(tensors, folder / WEIGHTS)

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        if not self.sharded:
            super()._save_optimizer_and_scheduler(output_dir)
            return
        tensors = optimiser_tensors(self.optimizer)
        if self.args.should_save:
            save_file(tensors, Path(output_dir) / OPTIMISER)
            told = json.dumps(self.lr_scheduler.state_dict())
            (Path(output_dir) / SCHEDULER).write_text(told, encoding="utf-8")

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        if not self.sharded:
            super()._load_from_checkpoint(resume_from_checkpoint, model)
            return
        load_weights(self.model, load_file(Path(resume_from_checkpoint) / WEIGHTS))

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if not self.sharded or checkpoint is None:
            super()._load_optimizer_and_scheduler(checkpoint)
            return
        load_optimiser(self.optimizer, load_file(Path(checkpoint) / OPTIMISER))
        told = json.loads((Path(checkpoint) / SCHEDULER).read_text(encoding="utf-8"))
        self.lr_scheduler.load_state_dict(told)
        # a schedule sets the rate with its next step, which comes after the optimiser's
        for group, rate in zip(self.optimizer.param_groups, self.lr_scheduler.get_last_lr(), strict=True):
            group["lr"] = rate

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        if self._recipe.ordinary or not model.training:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        step, steps = self.state.global_step, self.state.max_steps
        self._micro = (step, self._micro[1] + 1 if self._micro[0] == step else 0)
        self._dropout.begin(step, self._micro[1], self._recipe.rates(step, steps, self._num_layers))
        weights = self._recipe.weights(step, steps, self._num_layers)
        # one context around all forwards, so that autocast converts each weight once
        with self.accelerator.autocast():
            loss = exit_loss(
                self._exits,
                model,
                self.accelerator.unwrap_model(model),
                inputs,
                weights,
                num_items_in_batch,
                spare_memory=bool(self.args.activation_checkpointing),
            )
        if num_items_in_batch is not None and self.args.average_tokens_across_devices:
            loss = loss * self.accelerator.num_processes
        return loss
