"""A directory with a PEFT adapter: its base model is read, and the adapter merged into the weights.

A merged adapter runs on every decoder, at the speed of the base model. The base is the model in the same directory if there
is one, else the one that adapter_config.json names.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from ...errors import InvalidModelFile, ModelNotFound, UnsupportedModel, reason_of
from ..files.locate import locate
from .wrappers import check_adapter

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"


def has_adapter(directory: Path) -> bool:
    return (directory / CONFIG).is_file()


def base_of(directory: Path) -> Path:
    """The directory of the model that the adapter in directory belongs to. Raises ModelNotFound, InvalidModelFile."""
    weights = [file for file in directory.glob("*.safetensors") if not file.name.startswith("adapter_")]
    if weights and (directory / "config.json").is_file():
        return directory
    try:
        base = str(json.loads((directory / CONFIG).read_text(encoding="utf-8"))["base_model_name_or_path"] or "")
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidModelFile(f"{directory / CONFIG} names no base model that can be read ({error})") from error
    if not base:
        raise ModelNotFound(
            f"{directory / CONFIG} names no base model; set base_model_name_or_path to its path or name"
        )
    beside = directory / base
    try:
        found = beside if beside.is_dir() else locate(base)
    except ModelNotFound as error:
        raise ModelNotFound(f"{directory} holds an adapter of {base!r}, which isn't available: {error}") from error
    if not found.is_dir():
        raise UnsupportedModel(f"{directory} holds an adapter of {found}, a file; name the directory of its base model")
    return found


@contextmanager
def without_adapter(directory: Path) -> Iterator[Path]:
    """The same files without the adapter's, which transformers would otherwise put into the model's layers."""
    with tempfile.TemporaryDirectory() as folder:
        for file in directory.resolve().iterdir():
            if not file.name.startswith("adapter_"):
                (Path(folder) / file.name).symlink_to(file, target_is_directory=file.is_dir())
        yield Path(folder)


def merged(model: Any, directory: Path) -> Any:
    """model with the adapter in directory in its weights. Raises UnsupportedModel, InvalidModelFile."""
    if find_spec("peft") is None:
        raise UnsupportedModel(f"{directory} holds a PEFT adapter, which needs the package peft: pip install peft")
    if not (directory / WEIGHTS).is_file():
        raise UnsupportedModel(
            f"{directory} holds {CONFIG} and no {WEIGHTS}; pickled weights (*.bin) can run code when they are read"
        )
    from peft import PeftConfig, PeftModel, get_peft_model_state_dict

    try:
        config = PeftConfig.from_pretrained(str(directory))
        check_adapter(config, f"the adapter in {directory}")
        held = set(load_file(directory / WEIGHTS))
        wrapped = PeftModel.from_pretrained(model, str(directory), config=config)
        taken = set(get_peft_model_state_dict(wrapped))
        if held != taken:
            odd = sorted(held ^ taken)[0]
            raise InvalidModelFile(f"{directory / WEIGHTS} doesn't fit the model, such as {odd}")
        return wrapped.merge_and_unload().eval().requires_grad_(True)
    except (MemoryError, torch.OutOfMemoryError, InvalidModelFile, UnsupportedModel):
        raise
    except (SafetensorError, OSError, ValueError, TypeError, KeyError, RuntimeError, NotImplementedError) as error:
        raise InvalidModelFile(
            f"the adapter in {directory} can't be merged into its model: {reason_of(error)}"
        ) from error
