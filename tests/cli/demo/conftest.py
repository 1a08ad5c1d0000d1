from __future__ import annotations

import pytest

from forerun.testing import save_tiny


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny model whose matrices have whole groups of 4-bit weights."""
    path = tmp_path_factory.mktemp("models") / "small"
    return str(save_tiny(path, intermediate_size=64, max_position_embeddings=1024))
