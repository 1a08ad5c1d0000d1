"""forerun makes Hugging Face causal language models write faster without changing a probability of what they write."""

from .answer import LogprobOptions, Piece, Result, TokenLogprob
from .core import Context, Draft, Round, Sampling, Step, Verdict
from .decode import decode
from .drafters.base import DRAFTERS, Drafter
from .drive import Batch, drive
from .engine import Engine, load
from .errors import ForerunError, InvalidLogits, ModelNotFound, UnsupportedModel, UnsupportedOption
from .hf_generate import custom_generate
from .models.plan import LayerPlan
from .policies.base import POLICIES, LengthPolicy
from .processors import row_wise
from .stats import Stats
from .system.file import read_system, write_system
from .system.opened import load_system
from .system.value import System

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
