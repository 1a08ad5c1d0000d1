from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the models are kept that are converted, in a cache of the test's own."""
    monkeypatch.setenv("FORERUN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "models"
