from __future__ import annotations

from typing import Any

import pytest

from forerun.models.packed.runner import HFRunner
from forerun.testing import tiny_model


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny_model("llama")


@pytest.fixture
def runner(model: Any) -> HFRunner:
    return HFRunner(model)
