"""Tables in the place of tensors, for the tests that enumerate."""

from importlib import import_module

import pytest
from torch import Tensor

from .exact import RowList, table_law, table_ranked


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the loop turns a row of logits into a law, a table gives it."""
    for name in ("forerun.core.decode", "forerun.drafters.chain"):
        monkeypatch.setattr(import_module(name), "law", table_law)
    monkeypatch.setattr(import_module("forerun.drafters.branches"), "ranked", table_ranked)
    graph = import_module("forerun.drafters.graph")
    stacked = graph.gathered
    monkeypatch.setattr(graph, "gathered", lambda rows: stacked(rows) if isinstance(rows[0], Tensor) else RowList(rows))
