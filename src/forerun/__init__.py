"""forerun makes Hugging Face causal language models write faster without changing a probability of what they write."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .core.decode import decode
    from .core.drafter import Drafter
    from .core.drive import Batch, drive
    from .core.policy import LengthPolicy
    from .core.processors import row_wise
    from .core.values import Context, Draft, Round, Sampling, Step, Verdict
    from .drafters.registry import DRAFTERS
    from .engine.answer import LogprobOptions, Piece, Result, TokenLogprob
    from .engine.engine import Engine, load
    from .engine.prompts.prompt import Message, Prompt, Prompts
    from .engine.request import LogitsProcessor, RequestOptions
    from .engine.stats import Stats
    from .engine.system.file import read_system, write_system
    from .engine.system.load import load_system
    from .engine.system.value import System
    from .errors import ForerunError, InvalidLogits, ModelNotFound, UnsupportedModel, UnsupportedOption
    from .hf.generate import custom_generate
    from .models.packed.plan import LayerPlan
    from .policies.registry import POLICIES

__version__ = "0.1.0"

__all__ = [
    "DRAFTERS",
    "POLICIES",
    "Batch",
    "Context",
    "Draft",
    "Drafter",
    "Engine",
    "ForerunError",
    "InvalidLogits",
    "LayerPlan",
    "LengthPolicy",
    "LogitsProcessor",
    "LogprobOptions",
    "Message",
    "ModelNotFound",
    "Piece",
    "Prompt",
    "Prompts",
    "RequestOptions",
    "Result",
    "Round",
    "Sampling",
    "Stats",
    "Step",
    "System",
    "TokenLogprob",
    "UnsupportedModel",
    "UnsupportedOption",
    "Verdict",
    "custom_generate",
    "decode",
    "drive",
    "load",
    "load_system",
    "read_system",
    "row_wise",
    "write_system",
]

# the module of each public name, imported when the name is first asked for: torch and transformers take seconds
_HOME = {
    "DRAFTERS": "drafters.registry",
    "POLICIES": "policies.registry",
    "Batch": "core.drive",
    "Context": "core.values",
    "Draft": "core.values",
    "Drafter": "core.drafter",
    "Engine": "engine.engine",
    "ForerunError": "errors",
    "InvalidLogits": "errors",
    "LayerPlan": "models.packed.plan",
    "LengthPolicy": "core.policy",
    "LogitsProcessor": "engine.request",
    "LogprobOptions": "engine.answer",
    "Message": "engine.prompts.prompt",
    "ModelNotFound": "errors",
    "Piece": "engine.answer",
    "Prompt": "engine.prompts.prompt",
    "Prompts": "engine.prompts.prompt",
    "RequestOptions": "engine.request",
    "Result": "engine.answer",
    "Round": "core.values",
    "Sampling": "core.values",
    "Stats": "engine.stats",
    "Step": "core.values",
    "System": "engine.system.value",
    "TokenLogprob": "engine.answer",
    "UnsupportedModel": "errors",
    "UnsupportedOption": "errors",
    "Verdict": "core.values",
    "custom_generate": "hf.generate",
    "decode": "core.decode",
    "drive": "core.drive",
    "load": "engine.engine",
    "load_system": "engine.system.load",
    "read_system": "engine.system.file",
    "row_wise": "core.processors",
    "write_system": "engine.system.file",
}


if not TYPE_CHECKING:  # a type checker would take any name for one of the package

    def __getattr__(name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
