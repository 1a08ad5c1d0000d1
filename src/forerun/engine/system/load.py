"""Loads the engine that a system describes."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from ...errors import UnsupportedOption
from ...models.lean.weights import WeightsName
from ...models.loading.given_tokenizer import TokenizerSource
from ...models.loading.load import DtypeName, RunnerName
from ...models.packed.plan import ActivationBits
from ..engine import Engine, load
from .file import read_system
from .value import System


def load_system(
    system: System | str | Path,
    model: str | Path | nn.Module | None = None,
    tokenizer: TokenizerSource | None = None,
    *,
    dtype: DtypeName | torch.dtype | None = None,
    device: str | torch.device | None = None,
    weights: WeightsName | None = None,
    runner: RunnerName | None = None,
    activations: ActivationBits | None = None,
    trust_remote_code: bool = False,
) -> Engine:
    """An engine that decodes as a system, or a file that holds one, says.

    model is the system's own unless given; so are dtype, weights, runner and activations, which override the system's. A
    model object stays in its own form. Warns (UserWarning) where machine, versions, threads or form are others than those
    it was tuned on. Raises UnsupportedOption where the model is another one, and what read_system and forerun.load raise.
    """
    system = system if isinstance(system, System) else read_system(system)
    if model is None:
        if system.target is None:
            raise UnsupportedOption(f"the system {system.name!r} names no model; give one")
        model = system.target.model
    asked = {"dtype": dtype, "weights": weights, "runner": runner, "activations": activations}
    own = system if isinstance(model, str | Path) else replace(system, target=None)
    form = own.opening(asked)
    plain = load(model, tokenizer, device=device, trust_remote_code=trust_remote_code, **form)
    engine = system.method_on(plain)
    if departures := system.departures(engine, form):
        warnings.warn(departures, stacklevel=2)
    return engine
