"""Opening a model of which packed weights are kept, and keeping those of one that was opened."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import torch

from ...core.identity import Identity
from ..lean.mapped.decoder import Undescribed, describe, restore
from ..lean.mapped.file import Contents
from ..lean.mapped.origin import files_of, origin_of
from ..lean.mapped.place import LEAST, SWITCH, Place, switched_off, weights_folder
from ..lean.native.library import Library, choose
from ..lean.runner import LeanRunner
from ..lean.shape import FAMILIES, shape_of
from .peft_adapter import has_adapter


@final
@dataclass(frozen=True, slots=True)
class Keeping:
    """A place for a model's packed weights, and the kernels that they are for."""

    place: Place
    library: Library

    def opened(self, contents: Contents, config: Any, name: str) -> tuple[LeanRunner, Identity] | None:
        """A runner on weights that lie in the file; None where the file doesn't hold what it should."""
        try:
            identity = Identity.from_dict(contents.about["identity"])
            decoder = restore(contents.about["decoder"], contents.tensors, self.library, shape_of(config))
            runner = LeanRunner.from_decoder(config, decoder, name, self.library)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, RuntimeError):
            return None
        runner.weights_file = self.place.file
        return runner, identity

    def keep(self, runner: LeanRunner, identity: Identity) -> LeanRunner:
        """Write a runner's weights, in the place's turn. The same on the file, or itself with the reason why not."""
        if not isinstance(runner.native, Library):
            runner.weights_reason = "only weights that are packed for the native step are kept"
            return runner
        try:
            decoder, tensors = describe(runner.decoder)
        except Undescribed as error:
            runner.weights_reason = str(error)
            return runner
        runner.weights_reason = self.place.write({"identity": identity.as_dict(), "decoder": decoder}, tensors) or ""
        if runner.weights_reason:
            return runner
        # not checked: it was written a moment ago, and reading it now would hold the model twice
        contents = self.place.read(check=False)
        if contents is None:
            runner.weights_reason = f"{self.place.file} could not be read again"
            return runner
        mapped = runner.on(restore(decoder, contents.tensors, self.library, runner.shape))
        mapped.weights_file = self.place.file
        return mapped

    @contextmanager
    def turn(self) -> Iterator[str | None]:
        with self.place.turn() as reason:
            yield reason


def keeping_of(
    model: Path, weights: str, dtype: torch.dtype | None, device: torch.device, trust_remote_code: bool
) -> Keeping | str:
    """Where to keep the packed weights of a GGUF file or a directory, or why they aren't kept."""
    if switched_off():
        return f"{SWITCH}=off says so"
    if device.type != "cpu":
        return "weights are kept for CPUs only"
    library = choose()
    if not isinstance(library, Library):
        return library
    if trust_remote_code:
        return "what the model's own code reads can't be told"
    if model.is_dir() and has_adapter(model):
        return "an adapter is merged into them"
    if reason := _foreign(model):
        return reason
    files = [file for file in files_of(model) if file.is_file()]
    if (size := sum(file.stat().st_size for file in files)) < LEAST:
        return f"the model is small ({size / 1e6:.1f} MB; from {LEAST / 1e6:.0f} MB on they are kept)"
    return Keeping(Place.of(weights_folder(), origin_of(model, weights, dtype)), library)


def _foreign(model: Path) -> str | None:
    """Why a directory's model can't be of the lean decoder, at a glance: others needn't wait for each other to load."""
    if model.is_file():
        return None
    try:
        config = json.loads((model / "config.json").read_text(encoding="utf-8"))
        kinds = {config["model_type"], config.get("text_config", {}).get("model_type")}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return "its configuration doesn't tell its family"
    return None if kinds & FAMILIES.keys() else f"{config['model_type']} is no family of the lean decoder"
