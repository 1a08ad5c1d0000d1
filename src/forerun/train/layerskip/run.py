"""LayerSkip training (arXiv 2404.16710): trains a model for early exit, with layer dropout and a loss at its exits.

It runs on transformers' Trainer: weights in float32, forward and backward passes in bfloat16 if asked, AdamW. Part of the
examples is held out and never trained on. The result is an ordinary checkpoint in the dtype the model came in, with
layerskip.json beside it.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from ...errors import UnsupportedOption
from ...models.files.quiet import quiet
from ...models.loading.load import Module
from ..data.examples import Example, fingerprint, split
from ..output_folder import OutputFolder, check_output, check_space
from ..processes import launched, sharding_asked
from ..sharding import whole
from .batches import Rows, check_packing, collate, ordered, packed
from .presets import Recipe
from .settings import Settings, arguments

ABOUT = "layerskip.json"
NEEDED = ("accelerate", "peft", "tensorboard")
VERSIONS = ("forerun", "torch", "transformers", "accelerate", "peft")


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
    """Raise UnsupportedOption where a package of the extra is missing, or the launch asks for what isn't supported."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise UnsupportedOption(f"training needs {', '.join(missing)}: pip install 'forerun[train]'")
    sharding_asked()


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
    dtype, kind = module.model.dtype, type(module.model)
    model = _prepared(module, recipe, settings)
    check_space(output, _bytes_needed(model, settings))
    about = _about(module, examples, held, recipe, settings)
    work = OutputFolder(output, about["run"])
    trainer = _trainer(model, learnt, held, work.path, recipe, settings)
    trainer.accelerator.wait_for_everyone()
    main = trainer.is_world_process_zero()
    if main:
        work.open()
    trainer.accelerator.wait_for_everyone()
    _announce(trainer, begin, log)
    with work.guarded() if main else nullcontext(), quiet():
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
        finished = _gathered(trainer.model, kind, settings) if trainer.sharded else trainer.model
        if main:
            _write(finished, module.tokenizer, dtype, work, {**about, "report": asdict(report)})
    trainer.accelerator.wait_for_everyone()
    if trainer.args.world_size > 1:
        # a process that ends while the group still stands can abort the others
        trainer.accelerator.end_training()
    return report


def _prepared(module: Module, recipe: Recipe, settings: Settings) -> Any:
    """The model in float32, new weights in it or LoRA around it if asked."""
    model = module.model.float()
    if recipe.fresh:
        torch.manual_seed(settings.seed)
        model = type(model)(model.config)
    if settings.pack:
        check_packing(model)
    return _adapted(model, settings)


def _adapted(model: Any, settings: Settings) -> Any:
    """With LoRA around it if asked."""
    if settings.lora_rank == 0:
        return model
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(settings.seed)
    linear = LoraConfig(
        r=settings.lora_rank, lora_alpha=2 * settings.lora_rank, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    with quiet():
        return get_peft_model(model, linear)


def _sharded() -> bool:
    return launched().size > 1 and sharding_asked()


def _gathered(model: Any, kind: type, settings: Settings) -> Any:
    """An unsharded model of this class with the weights of all processes; all must ask."""
    weights = {name: whole(value) for name, value in model.state_dict().items()}
    with torch.device("meta"):
        plain = kind(model.config)
    plain.generation_config = model.generation_config
    plain = _adapted(plain, settings)
    plain.load_state_dict(weights, assign=True)
    return plain


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
            "launch": {"processes": launched().size, "sharded": _sharded()},
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

    from .trainer import SkipTrainer

    args = arguments(folder, recipe, settings)
    trainer = SkipTrainer(
        recipe,
        int(model.config.get_text_config().num_hidden_layers),
        _sharded(),
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


def _announce(
    trainer: Any, begin: Callable[[int], Callable[[], None]] | None, log: Callable[[Mapping[str, Any]], None]
) -> None:
    from .trainer import Announcer

    logging.getLogger("transformers.trainer").setLevel(logging.ERROR)
    args = trainer.args
    steps = len(trainer.train_dataset) // (args.train_batch_size * args.gradient_accumulation_steps * args.world_size)
    trainer.add_callback(Announcer(begin(steps) if begin is not None else lambda: None, log))


def _write(model: Any, tokenizer: Any | None, dtype: torch.dtype, work: OutputFolder, about: Mapping[str, Any]) -> None:
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
