"""Small runs for the tests of training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from forerun.models.loading.load import open_module
from forerun.train.data.examples import Example
from forerun.train.layerskip.presets import Recipe, preset
from forerun.train.layerskip.run import Report, train
from forerun.train.layerskip.settings import Settings

EXITS = Recipe(0.3, 1.0, "rotational", 2, "constant", 1e-3)
ORDINARY = replace(preset("fine_tune"), p_max=0.0, e_scale=0.0, learning_rate=1e-3)
QUICK = Settings(steps=6, batch_size=4, bf16=False, held_out=0.1, save_every=0, log_every=1, seed=3)


def examples(count: int = 40) -> list[Example]:
    """Different ones of 6 to 12 tokens that count upwards from their first token."""
    return [
        Example(tuple((7 * index + step) % 251 for step in range(6 + index % 7)), 2 + index % 2)
        for index in range(count)
    ]


def run(tiny: Path, output: Path, recipe: Recipe = EXITS, settings: Settings = QUICK, **given: Any) -> Report:
    return train(open_module(tiny), examples(), output, recipe, settings, **given)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def same(one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
