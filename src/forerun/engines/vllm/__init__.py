"""forerun inside vLLM: "forerun.engines.vllm.Proposer" is the class that vLLM's method custom_class names."""

from .proposer import Proposer

__all__ = ["Proposer"]
