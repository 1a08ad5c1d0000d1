"""The engines that can be tuned, by name."""

from __future__ import annotations

from ...errors import UnsupportedOption
from .knobs import ENGINES
from .llama_cpp import LlamaCpp
from .serving_engine import ServingEngine
from .transformers import Transformers
from .vllm import Vllm


def engine_named(name: str) -> ServingEngine:
    """Raises UnsupportedOption."""
    known: dict[str, type[ServingEngine]] = {"vllm": Vllm, "llama.cpp": LlamaCpp, "transformers": Transformers}
    if name not in known:
        raise UnsupportedOption(f"unknown engine {name!r}; known: {', '.join(ENGINES)}")
    return known[name]()
