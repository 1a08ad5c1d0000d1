"""Reads a directory of safetensors with transformers, with one sentence as the error if it can't be read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM

from ...errors import ForerunError, InvalidModelFile, ModelNotFound, UnsupportedModel, reason_of
from ..files.compact_draft import is_compact
from ..files.loading_info import check_complete
from ..files.quiet import quiet
from .checks import check_quantisation
from .peft_adapter import base_of, has_adapter, merged, without_adapter
from .tokenizer_files import check_json


def read_checkpoint(
    directory: Path, dtype: torch.dtype | None, trust_remote_code: bool, without_weights: bool = False
) -> Any:
    """The model in a directory, with the adapter in it merged; dtype is the checkpoint's own unless given.

    without_weights: as it is but for the numbers, on the device "meta"; not of one with an adapter.
    Raises ModelNotFound, InvalidModelFile, UnsupportedModel.
    """
    if not has_adapter(directory):
        return _read(directory, directory, dtype, trust_remote_code, without_weights)
    base = base_of(directory)
    if base == directory:
        with without_adapter(directory) as bare:
            model = _read(bare, directory, dtype, trust_remote_code)
    else:
        model = read_checkpoint(base, dtype, trust_remote_code)
    with quiet():
        return merged(model, directory)


def _read(
    directory: Path, name: Path, dtype: torch.dtype | None, trust_remote_code: bool, without_weights: bool = False
) -> Any:
    """name: what to call the directory in errors."""
    if is_compact(directory):
        raise UnsupportedModel(
            f"{name} holds a compact draft, which runs on its target's tables alone: --drafter draft_model --drafter-model "
            f"{name}"
        )
    if not (directory / "config.json").is_file():
        raise ModelNotFound(f"{name} holds no model: it has no config.json")
    if not any(directory.glob("*.safetensors")):
        raise UnsupportedModel(
            f"{name} holds no safetensors weights; pickled ones (*.bin, *.pt) can run code when they are read, so convert "
            "them first"
        )
    # transformers goes on without one that it can't read, and the ends of text that it names are lost
    check_json(directory / "generation_config.json")
    options = {"trust_remote_code": trust_remote_code, "local_files_only": True}
    try:
        with quiet():
            config = AutoConfig.from_pretrained(directory, **options)
            check_quantisation(config, name.name)
            model, info = AutoModelForCausalLM.from_pretrained(
                directory,
                dtype=dtype or "auto",
                use_safetensors=True,
                output_loading_info=True,
                # told by check_complete, which names them
                ignore_mismatched_sizes=True,
                device_map="meta" if without_weights else None,
                **options,
            )
    except (ForerunError, MemoryError, torch.OutOfMemoryError):
        raise
    except SafetensorError as error:
        raise InvalidModelFile(
            f"{name} has weights that are corrupt or truncated, download them again ({error})"
        ) from error
    except Exception as error:
        raise UnsupportedModel(f"{name} can't be loaded as a causal language model: {_sentence(error)}") from error
    check_complete(model, info, name)
    model.config.name_or_path = str(name)
    return model


def _sentence(error: Exception) -> str:
    reason = reason_of(error)
    if "contains custom code" in reason:
        return "it needs code of its own; give trust_remote_code=True (--trust-remote-code) if you trust that code"
    return reason
