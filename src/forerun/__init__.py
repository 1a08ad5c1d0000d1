"""forerun makes Hugging Face causal language models write faster without changing a probability of what they write."""

__version__ = "0.1.0"
