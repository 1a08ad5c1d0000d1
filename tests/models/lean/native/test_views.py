"""The structures are those of cpp/views.h: sizes here, contents by every test that runs a forward."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import pytest

from forerun.models.lean.native import views

HEADER = (Path(views.__file__).parent / "cpp" / "views.h").read_text(encoding="utf-8")
PAIRS = {
    "Matrix": views.MatrixView,
    "Layer": views.LayerView,
    "Model": views.ModelView,
    "Part": views.PartView,
    "Call": views.CallView,
    "Chain": views.ChainView,
    "Filters": views.FiltersView,
}


def fields_in_header(name: str) -> list[str]:
    body = re.search(rf"struct {name} {{(.*?)}};", HEADER, re.DOTALL)
    assert body is not None
    lines = [re.sub(r"//.*", "", line).strip() for line in body[1].splitlines()]
    declared = [declaration for line in lines for declaration in line.split(";") if declaration.strip()]
    kinds = r"^\s*(const\s+)?\w+\s*(\*\s*const|const)?\s*"
    return [name.strip(" *") for one in declared for name in re.sub(kinds, "", one, count=1).split(",")]


@pytest.mark.parametrize("name", PAIRS)
def test_fields_stand_in_the_order_of_the_header(name: str) -> None:
    assert [field for field, _ in PAIRS[name]._fields_] == fields_in_header(name)


@pytest.mark.parametrize("name", PAIRS)
def test_no_field_is_padded_unseen(name: str) -> None:
    view = PAIRS[name]
    assert ctypes.sizeof(view) == sum(ctypes.sizeof(kind) for _, kind in view._fields_)
