"""What vLLM's configuration says to forerun.

additional_config holds it under "forerun": the path of a system file, {"system": PATH}, or a method as such a file has it,
{"drafter": {"name": "lookup"}, "policy": {"name": "cost"}}. Beside either, draft_memory bounds what a draft model keeps.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import torch

from ...engine.system.file import read_system, system_in
from ...engine.system.value import System, Target
from ...errors import UnsupportedOption

KEY = "forerun"
METHOD = ("drafter", "policy")
MEMORY, MOST_MEMORY = "draft_memory", 1.0
BY_DEFAULT: Mapping[str, Any] = {"drafter": {"name": "suffix"}, "policy": {"name": "governor"}}
SHAPE = {
    "family": "model_type",
    "num_layers": "num_hidden_layers",
    "hidden_size": "hidden_size",
    "vocab_size": "vocab_size",
}


@final
@dataclass(frozen=True, slots=True)
class Served:
    """The model that vLLM runs: its path or hub name, the config of its text part, its floats, and where it is."""

    model: str = ""
    config: Any = None
    dtype: torch.dtype = torch.float32
    device: str = "cpu"


@final
@dataclass(frozen=True, slots=True)
class Settings:
    """longest: a draft, in tokens; max_length: a text; requests: the most at once.

    draft_memory: the most GiB of keys and values that a draft model keeps for the requests in flight.
    """

    system: System
    longest: int
    max_length: int
    requests: int
    eos: frozenset[int] = frozenset()
    served: Served = Served()
    draft_memory: float = MOST_MEMORY


def settings_of(config: Any) -> Settings:
    """From a VllmConfig. Raises UnsupportedOption or ValueError on what forerun can't do there."""
    model = config.model_config
    described = model.hf_config.get_text_config()
    additional = getattr(config, "additional_config", None)
    system = chosen_system(additional)
    if system.target is not None:
        _check(system, system.target, described)
    eos = getattr(described, "eos_token_id", None)
    return Settings(
        system,
        int(config.speculative_config.num_speculative_tokens),
        int(model.max_model_len),
        int(config.scheduler_config.max_num_seqs),
        frozenset() if eos is None else frozenset([eos] if isinstance(eos, int) else eos),
        _served(config, described),
        _draft_memory(_given(additional)),
    )


def _served(config: Any, described: Any) -> Served:
    model = config.model_config
    return Served(str(model.model), described, model.dtype, str(config.device_config.device_type))


def chosen_system(additional: Any) -> System:
    """The method that additional_config asks for; by default suffix under the governor."""
    given = _given(additional)
    if unknown := sorted(set(given) - {"system", MEMORY, *METHOD}):
        raise UnsupportedOption(
            f'unknown key {unknown[0]!r} under "{KEY}" in additional_config; known: system, {", ".join(METHOD)}, {MEMORY}'
        )
    given.pop(MEMORY, None)
    if "system" in given:
        if len(given) > 1:
            raise UnsupportedOption(f'under "{KEY}" in additional_config stands a system or a method, not both')
        return read_system(str(given["system"]))
    return system_in({**BY_DEFAULT, **given}, Path(KEY))


def _given(additional: Any) -> dict[str, Any]:
    """What additional_config holds for forerun."""
    given = additional.get(KEY, {}) if isinstance(additional, Mapping) else {}
    if isinstance(given, str):
        return {"system": given}
    if not isinstance(given, Mapping):
        raise UnsupportedOption(
            f'"{KEY}" in additional_config must be an object or the path of a system file, got {json.dumps(given)[:60]}'
        )
    return dict(given)


def _draft_memory(given: Mapping[str, Any]) -> float:
    value = given.get(MEMORY, MOST_MEMORY)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise UnsupportedOption(f"{MEMORY} must be a number of GiB above 0, got {json.dumps(value)[:60]}")
    return float(value)


def _check(system: System, target: Target, described: Any) -> None:
    """vLLM has no identity of weights; the shape tells most other models."""
    for name, field in SHAPE.items():
        here, there = getattr(described, field, None), getattr(target.identity, name)
        if here is not None and here != there:
            raise UnsupportedOption(
                f"the system {system.name!r} was tuned for {target.model}, which is another model: its {name} is {there} "
                f"and that of vLLM's model {here}; tune this one, or serve that one"
            )
