"""LayerSkip training (arXiv 2404.16710): a model that can leave early, by dropping layers and learning at their exits.

It runs on transformers' Trainer: weights in float32, forward and backward passes in bfloat16 if asked, AdamW. Part of the
examples is held out and never trained on. The result is an ordinary checkpoint in the dtype the model came in, with
layerskip.json beside it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from ..errors import UnsupportedOption
from ..models.load import Module
from ..models.quiet import quiet
from .batches import Rows, check_packing, collate, ordered, packed
from .examples import Example, split
from .presets import Recipe
from .workplace import Workplace, check_output, check_space

ABOUT = "layerskip.json"
NEEDED = ("accelerate", "peft", "tensorboard")
VERSIONS = ("forerun", "torch", "transformers", "accelerate", "peft")


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
        if self.schedule not in ("linear", "cosine", "constant"):
            raise UnsupportedOption(f"unknown schedule {self.schedule!r}; known: linear, cosine, constant")


@dataclass(frozen=True, slots=True)
class Report:
    """What a run came to. losses are (step, loss) as logged; main is whether this process is the one that writes."""

    output: str
    steps: int
    seconds: float
    examples: int
    held_out: int
    held_out_loss: float
    losses: tuple[tuple[int, float], ...]
    main: bool


def check_training() -> None:
    """Raise UnsupportedOption where a package of the extra is missing."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise UnsupportedOption(f"training needs {', '.join(missing)}: pip install 'forerun[train]'")


def fingerprint(examples: Sequence[Example]) -> str:
    """16 hex digits that say whether examples are the same, in the same order."""
    digest = hashlib.sha256()
    for example in examples:
        digest.update(f"{example.start} {example.ids}\n".encode())
    return digest.hexdigest()[:16]


def train(
    module: Module,
    examples: Sequence[Example],
    output: Path,
    recipe: Recipe,
    settings: Settings,
    *,
    resume: bool = False,
    begin: Callable[[int], Callable[[], None]] | None = None,
    log: Callable[[Mapping[str, Any]], None] = lambda entry: None,
) -> Report:
    """Train a model and write it to output, a directory that mustn't exist. module's model is changed.

    begin is told the number of steps and gives what is called after each; log takes what the Trainer logs. Raises
    ValueError where there is something at the output, no space for it, or nothing to learn from.
    """
    check_training()
    check_output(output, resume)
    learnt, held = split(examples, settings.held_out, settings.seed)
    dtype = module.model.dtype
    model = _prepared(module, recipe, settings)
    check_space(output, _bytes_needed(model, settings))
    about = _about(module, examples, held, recipe, settings)
    work = Workplace(output, about["run"])
    trainer = _trainer(model, learnt, held, work.path, recipe, settings)
    trainer.accelerator.wait_for_everyone()
    main = trainer.is_world_process_zero()
    if main:
        work.open()
    trainer.accelerator.wait_for_everyone()
    _announce(trainer, begin, log)
    with work.guarded(), quiet():
        resumed = work.checkpoint() if resume else None
        done = trainer.run(None if resumed is None else str(resumed))
        judged = trainer.evaluate()
        report = Report(
            str(output),
            int(trainer.state.global_step),
            float(done.metrics["train_runtime"]),
            len(learnt),
            len(held),
            float(judged["eval_loss"]),
            tuple((entry["step"], entry["loss"]) for entry in trainer.state.log_history if "loss" in entry),
            main,
        )
        if main:
            _write(trainer.model, module.tokenizer, dtype, work, {**about, "report": asdict(report)})
    trainer.accelerator.wait_for_everyone()
    return report


def _prepared(module: Module, recipe: Recipe, settings: Settings) -> Any:
    """The model in float32, new weights in it or LoRA around it if asked."""
    model = module.model.float()
    if recipe.fresh:
        torch.manual_seed(settings.seed)
        model = type(model)(model.config)
    if settings.pack:
        check_packing(model)
    if settings.lora_rank == 0:
        return model
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(settings.seed)
    linear = LoraConfig(
        r=settings.lora_rank, lora_alpha=2 * settings.lora_rank, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    with quiet():
        return get_peft_model(model, linear)


def _bytes_needed(model: Any, settings: Settings) -> int:
    """The result, and where checkpoints are written two of them: weights and AdamW's two moments, in float32."""
    weights: int = sum(weight.numel() for weight in model.parameters())
    learnt: int = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    return 4 * weights + (2 * 4 * 3 * learnt if settings.save_every else 0)


def _about(
    module: Module, examples: Sequence[Example], held: Sequence[Example], recipe: Recipe, settings: Settings
) -> dict[str, Any]:
    out = {example.ids for example in held}
    return {
        "run": {
            "model": module.name,
            "recipe": recipe.as_dict(),
            "settings": asdict(settings),
            "data": fingerprint(examples),
        },
        "held_out": [index for index, example in enumerate(examples) if example.ids in out],
        "versions": {name: version(name) for name in VERSIONS},
    }


def _trainer(
    model: Any,
    learnt: Sequence[Example],
    held: Sequence[Example],
    folder: Path,
    recipe: Recipe,
    settings: Settings,
) -> Any:
    from transformers import PrinterCallback, ProgressCallback

    from .skip_trainer import SkipTrainer

    args = arguments(folder, recipe, settings)
    trainer = SkipTrainer(
        recipe,
        int(model.config.get_text_config().num_hidden_layers),
        model=model,
        args=args,
        data_collator=collate,
        train_dataset=rows_of(learnt, settings, args.world_size),
        eval_dataset=Rows([(one,) for one in held]),
    )
    for callback in (PrinterCallback, ProgressCallback):
        trainer.remove_callback(callback)
    return trainer


def rows_of(examples: Sequence[Example], settings: Settings, processes: int = 1) -> Rows:
    """All the rows of a run, in the order in which they are learnt."""
    rows = packed(examples, settings.pack) if settings.pack else [(one,) for one in examples]
    a_step = settings.batch_size * settings.accumulate * processes
    steps = settings.steps or math.ceil(settings.epochs * len(rows) / a_step)
    lengths = [sum(len(example.ids) for example in row) for row in rows]
    order = ordered(lengths, a_step, steps, settings.seed)
    return Rows([rows[index] for index in order], packed=settings.pack > 0)


def arguments(folder: Path, recipe: Recipe, settings: Settings) -> Any:
    """The settings in the Trainer's own words."""
    from transformers import TrainingArguments

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


def _announce(
    trainer: Any, begin: Callable[[int], Callable[[], None]] | None, log: Callable[[Mapping[str, Any]], None]
) -> None:
    from .skip_trainer import Announcer

    logging.getLogger("transformers.trainer").setLevel(logging.ERROR)
    args = trainer.args
    steps = len(trainer.train_dataset) // (args.train_batch_size * args.gradient_accumulation_steps * args.world_size)
    trainer.add_callback(Announcer(begin(steps) if begin is not None else lambda: None, log))


def _write(model: Any, tokenizer: Any | None, dtype: torch.dtype, work: Workplace, about: Mapping[str, Any]) -> None:
    """The model's directory, whole, then moved to the output."""
    if about["run"]["settings"]["lora_rank"]:
        model = model.merge_and_unload()
    folder = work.path / "model"
    with quiet():
        model.to(dtype).save_pretrained(folder)
        if tokenizer is not None:
            tokenizer.save_pretrained(folder)
    (folder / ABOUT).write_text(json.dumps(about, indent=1), encoding="utf-8")
    work.finish(folder, work.path / "logs")
