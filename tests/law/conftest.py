"""Tables in the place of tensors, for the tests that enumerate."""

from importlib import import_module

import pytest

from .exact import table_law


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the loop turns a row of logits into a law, a table gives it."""
    for name in ("forerun.decode", "forerun.drafters.chain"):
        monkeypatch.setattr(import_module(name), "law", table_law)
