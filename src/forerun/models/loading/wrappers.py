"""Modules around a transformers model that only pass its call on: compiled, parallel, or with an adapter in its layers."""

from __future__ import annotations

import sys
from typing import Any

import torch

from ...errors import UnsupportedModel

# adapters that act otherwise than as a part of some linear layer
_OUTSIDE_LAYERS = frozenset({"ADAPTION_PROMPT", "XLORA", "POLY", "CARTRIDGE", "SHADOW"})


def unwrapped(model: Any) -> Any:
    """The model that forerun runs for a model object; the object itself where nothing is around it.

    Raises UnsupportedModel on an adapter that doesn't act in the model's own layers.
    """
    while True:
        if isinstance(model, torch.nn.DataParallel | torch.nn.parallel.DistributedDataParallel):
            model = model.module
        elif isinstance(model, torch.nn.Module) and "_orig_mod" in model._modules:
            # torch.compile's; naming its type would import the compiler
            model = model._orig_mod
        elif _is_peft(model):
            for name, config in model.peft_config.items():
                check_adapter(config, f"the adapter {name!r}")
            model = model.get_base_model()
        else:
            return model


def check_adapter(config: Any, what: str) -> None:
    """Raise UnsupportedModel on a PEFT configuration whose adapter does more than change the outputs of layers."""
    kind = getattr(config.peft_type, "value", config.peft_type)
    if config.is_prompt_learning or config.is_adaption_prompt or kind in _OUTSIDE_LAYERS:
        raise UnsupportedModel(
            f"{what} is of the kind {kind}, which acts outside of the model's layers; forerun runs LoRA "
            "and others that change the outputs of layers"
        )
    if getattr(config, "alora_invocation_tokens", None):
        raise UnsupportedModel(
            f"{what} acts only after certain tokens (alora_invocation_tokens), which forerun can't do"
        )


def _is_peft(model: Any) -> bool:
    # nobody has such a model who hasn't imported the package, and importing it takes a second
    if "peft" not in sys.modules:
        return False
    from peft import PeftMixedModel, PeftModel

    return isinstance(model, PeftModel | PeftMixedModel)
