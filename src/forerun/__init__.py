"""forerun makes Hugging Face causal language models write faster without changing a probability of what they write."""

from .core.decode import decode
from .core.drafter import Drafter
from .core.drive import Batch, drive
from .core.policy import LengthPolicy
from .core.processors import row_wise
from .core.values import Context, Draft, Round, Sampling, Step, Verdict
from .drafters.base import DRAFTERS
from .engine.answer import LogprobOptions, Piece, Result, TokenLogprob
from .engine.engine import Engine, load
from .engine.stats import Stats
from .engine.system.file import read_system, write_system
from .engine.system.load import load_system
from .engine.system.value import System
from .errors import ForerunError, InvalidLogits, ModelNotFound, UnsupportedModel, UnsupportedOption
from .hf.generate import custom_generate
from .models.packed.plan import LayerPlan
from .policies.base import POLICIES

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
    "LogprobOptions",
    "ModelNotFound",
    "Piece",
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
