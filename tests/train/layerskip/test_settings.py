from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from forerun.errors import UnsupportedOption
from forerun.train.layerskip.presets import preset
from forerun.train.layerskip.settings import Settings, arguments


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"epochs": 0.0}, "epochs must be above 0"),
        ({"lora_rank": -1}, "lora_rank must be at least 0"),
        ({"schedule": "steep"}, "unknown schedule 'steep'; known: linear, cosine, constant"),
    ],
)
def test_settings_out_of_range_are_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(UnsupportedOption, match=said):
        Settings(**change)


def test_without_a_number_of_steps_the_epochs_count() -> None:
    with pytest.raises(UnsupportedOption, match="epochs"):
        Settings(epochs=0.0)

    assert Settings(steps=5, epochs=0.0).steps == 5


def test_the_trainer_is_told_all_of_it(tmp_path: Path) -> None:
    settings = Settings(batch_size=3, accumulate=5, bf16=False, seed=11, schedule="cosine", warmup=2, save_every=7)

    told = arguments(tmp_path, replace(preset("continual"), learning_rate=0.25), settings)

    assert (told.per_device_train_batch_size, told.gradient_accumulation_steps) == (3, 5)
    assert (told.learning_rate, told.lr_scheduler_type, told.warmup_steps, told.seed) == (0.25, "cosine", 2, 11)
    assert (told.save_strategy, told.save_steps, told.bf16, told.report_to) == ("steps", 7, False, ["tensorboard"])


@pytest.mark.parametrize(("save_every", "strategy"), [(0, "no"), (4, "steps")])
def test_checkpoints_are_written_if_asked(tmp_path: Path, save_every: int, strategy: str) -> None:
    assert arguments(tmp_path, preset("fine_tune"), Settings(save_every=save_every)).save_strategy == strategy
