"""The package's public names, which are imported when they are asked for."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import forerun

HOMES = vars(forerun)["_HOME"]


def test_every_public_name_has_a_home() -> None:
    assert list(HOMES) == forerun.__all__


@pytest.mark.parametrize("name", forerun.__all__)
def test_a_public_name_is_what_its_home_has(name: str) -> None:
    assert getattr(forerun, name) is getattr(import_module(f"forerun.{HOMES[name]}"), name)


def test_editors_and_type_checkers_see_the_same_homes() -> None:
    tree = ast.parse(Path(forerun.__file__).read_text(encoding="utf-8"))
    seen = next(node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in seen.body if isinstance(node, ast.ImportFrom)]

    assert {alias.name: node.module for node in imports for alias in node.names} == HOMES


def test_the_names_are_listed() -> None:
    assert {*forerun.__all__, "__version__"} <= {*dir(forerun)}


def test_another_name_is_refused_as_by_any_module() -> None:
    with pytest.raises(AttributeError, match="module 'forerun' has no attribute 'fly'"):
        _ = forerun.fly  # type: ignore[attr-defined]


def test_importing_the_package_imports_neither_torch_nor_transformers() -> None:
    code = (
        "import sys, forerun; print(forerun.__version__, sorted({'torch', 'transformers', 'typer'} & {*sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == f"{forerun.__version__} []\n"
