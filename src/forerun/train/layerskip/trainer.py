"""transformers' Trainer with LayerSkip's loss and dropout; with neither it is the plain Trainer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, final

from torch import Tensor
from transformers import Trainer, TrainerCallback

from .exit_loss import Exits, exit_loss
from .layer_dropout import LayerDropout
from .presets import Recipe


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

    num_layers is L of the model, whose layers are wrapped while `run` runs.
    """

    def __init__(self, recipe: Recipe, num_layers: int, **given: Any) -> None:
        super().__init__(**given)
        self._recipe = recipe
        self._num_layers = num_layers
        self._exits = Exits(num_layers)
        self._dropout = LayerDropout(self.args.seed)
        self._micro = (-1, 0)

    def run(self, resume: str | None) -> Any:
        """Train to the end, from a checkpoint on if there is one."""
        with ExitStack() as stack:
            if not self._recipe.ordinary:
                stack.enter_context(self._dropout.installed(self.model))
                stack.enter_context(self._exits.installed(self.model))
            return self.train(resume_from_checkpoint=resume)

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
