from __future__ import annotations

import pytest

import forerun
from forerun.testing import tiny_model, tiny_tokenizer


@pytest.fixture(scope="session")
def engine() -> forerun.Engine:
    tokenizer = tiny_tokenizer()
    return forerun.load(tiny_model("llama", vocab_size=len(tokenizer), max_position_embeddings=1024), tokenizer)
