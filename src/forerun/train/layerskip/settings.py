"""Settings of a training run, and their translation to the Trainer's arguments."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import UnsupportedOption
from .presets import Recipe

SCHEDULES = ("linear", "cosine", "constant")


@dataclass(frozen=True, slots=True)
class Settings:
    """How long and how to train. steps counts optimiser steps; where it is None, epochs are passes over the examples.

    batch_size is rows for one process and forward; accumulate forwards make a step. checkpoint_layers computes the layers
    again in the backward pass and holds less memory. pack is the length of rows into which examples are packed, 0 for none.
    lora_rank 0 trains all weights. save_every steps a checkpoint is written to resume from, 0: never. Raises
    UnsupportedOption on values out of range.
    """

    steps: int | None = None
    epochs: float = 1.0
    batch_size: int = 16
    accumulate: int = 1
    bf16: bool = True
    checkpoint_layers: bool = False
    pack: int = 0
    lora_rank: int = 0
    held_out: float = 0.05
    seed: int = 0
    schedule: str = "linear"
    warmup: int = 0
    weight_decay: float = 0.0
    save_every: int = 100
    log_every: int = 10

    def __post_init__(self) -> None:
        least = {"steps": 1, "batch_size": 1, "accumulate": 1, "pack": 0, "lora_rank": 0, "warmup": 0, "save_every": 0}
        for name, lowest in {**least, "log_every": 1}.items():
            value = getattr(self, name)
            if value is not None and value < lowest:
                raise UnsupportedOption(f"{name} must be at least {lowest}, got {value}")
        if self.steps is None and not self.epochs > 0:
            raise UnsupportedOption(f"epochs must be above 0, got {self.epochs}")
        if self.schedule not in SCHEDULES:
            raise UnsupportedOption(f"unknown schedule {self.schedule!r}; known: {', '.join(SCHEDULES)}")


def arguments(folder: Path, recipe: Recipe, settings: Settings) -> Any:
    """The settings in the Trainer's own words."""
    import torch
    from transformers import TrainingArguments

    from ...models.files.quiet import quiet

    # the only way to tell the Trainer's callback where its logs go
    os.environ["TENSORBOARD_LOGGING_DIR"] = str(folder / "logs")
    with quiet():
        return TrainingArguments(
            output_dir=str(folder),
            num_train_epochs=1,
            per_device_train_batch_size=settings.batch_size,
            per_device_eval_batch_size=settings.batch_size,
            gradient_accumulation_steps=settings.accumulate,
            activation_checkpointing=settings.checkpoint_layers,
            activation_checkpointing_kwargs={"use_reentrant": False} if settings.checkpoint_layers else None,
            learning_rate=recipe.learning_rate,
            lr_scheduler_type=settings.schedule,
            warmup_steps=settings.warmup,
            weight_decay=settings.weight_decay,
            bf16=settings.bf16,
            use_cpu=not torch.cuda.is_available(),
            seed=settings.seed,
            train_sampling_strategy="sequential",
            # a dropped layer hands out gradients of zero, so none is ever missing
            ddp_find_unused_parameters=False,
            dataloader_pin_memory=False,
            remove_unused_columns=False,
            prediction_loss_only=True,
            save_strategy="steps" if settings.save_every else "no",
            save_steps=settings.save_every or 1,
            save_total_limit=1,
            logging_steps=settings.log_every,
            logging_first_step=True,
            report_to=["tensorboard"],
            disable_tqdm=True,
        )
