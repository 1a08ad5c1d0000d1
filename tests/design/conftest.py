from __future__ import annotations

from pathlib import Path

import pytest

import forerun
from forerun.testing import save_tiny


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("design") / "tiny", max_position_embeddings=512)


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(
        tmp_path_factory.mktemp("design") / "small", max_position_embeddings=512, num_hidden_layers=2, seed=1
    )


@pytest.fixture(scope="session")
def engine(tiny: Path) -> forerun.Engine:
    return forerun.load(tiny)
