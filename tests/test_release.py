"""What a release holds, and that it runs outside of the repository."""

from __future__ import annotations

import ast
import os
import re
import shutil
import site
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from email.message import Message
from email.parser import Parser
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

import forerun

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "forerun"
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
CONSTRAINTS = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
# other engines, each in an environment of its own
ELSEWHERE = {"llama_cpp", "openvino", "openvino_genai", "vllm"}
# optuna brings the first, fastapi the others
BROUGHT = {"sqlalchemy", "pydantic", "starlette"}
KERNELS = "forerun/models/lean/native/cpp/"


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


PINS = {canonical(name): Version(pin) for name, pin in (line.split("==") for line in CONSTRAINTS)}


def ran(*command: str | Path, folder: Path, **variables: str) -> str:
    """What a command prints, in an environment that knows nothing of the repository; fails with its errors."""
    quiet = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | variables
    done = subprocess.run([str(part) for part in command], cwd=folder, env=quiet, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an sdist, and a wheel built from it, as on a machine without a compiler: compiling takes a minute."""
    tree = tmp_path_factory.mktemp("release") / "tree"
    shutil.copytree(SOURCE, tree / "src" / "forerun", ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tree)
    variables = {"PYTHONPATH": os.environ.get("PYTHONPATH", ""), "CC": "no-compiler", "CXX": "no-compiler"}
    ran(sys.executable, "-m", "build", "--no-isolation", "--outdir", tree / "dist", tree, folder=tree, **variables)
    return tree / "dist"


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    return next(dist.glob("*.whl"))


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel in it, which finds the wheel's dependencies where the tests find them."""
    path = tmp_path_factory.mktemp("elsewhere") / "environment"
    ran(sys.executable, "-m", "venv", "--without-pip", path, folder=path.parent)
    python = path / "bin" / "python"
    install = (
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--no-compile",
    )
    ran(*install, wheel, folder=path.parent)
    packages = ran(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", folder=path.parent).strip()
    (Path(packages) / "dependencies.pth").write_text("\n".join(site.getsitepackages()))
    return path


def names(folder: Path) -> Iterator[str]:
    for path in folder.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".so":
            yield path.relative_to(ROOT / "src").as_posix()


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        inside = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(inside).decode())


def changelog() -> str:
    return (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_version_is_written_in_one_place() -> None:
    assert "version" in PROJECT["dynamic"]
    assert version("forerun") == forerun.__version__
    assert re.search(rf"^## {re.escape(forerun.__version__)} - \d{{4}}-\d\d-\d\d$", changelog(), flags=re.M)


def test_the_changelog_names_each_release_once_and_the_latest_first() -> None:
    heads = re.findall(r"^## (.*)$", changelog(), flags=re.M)
    releases = [Version(head.split(" - ")[0]) for head in heads[1:]]

    assert heads[0] == "Unreleased"
    assert releases == sorted(set(releases), reverse=True)


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        inside = archive.namelist()

    assert sorted(name for name in inside if ".dist-info/" not in name) == sorted(
        name for name in names(SOURCE) if not name.startswith(KERNELS)
    )
    assert {"forerun/py.typed", "forerun/data/families.json", "forerun/data/open.jsonl"} < set(inside)
    assert [name for name in inside if name.endswith("licenses/LICENSE")] != []


def test_the_source_distribution_holds_what_the_wheel_is_built_from(dist: Path) -> None:
    top = f"forerun-{forerun.__version__}"
    with tarfile.open(dist / f"{top}.tar.gz") as archive:
        inside = {name.removeprefix(f"{top}/") for name in archive.getnames()}

    assert {f"src/{name}" for name in names(SOURCE)} < inside
    assert {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"} < inside


def test_the_metadata_is_complete(wheel: Path) -> None:
    told = metadata(wheel)

    assert (told["Name"], told["Version"]) == ("forerun", forerun.__version__)
    assert (told["License-Expression"], told["Requires-Python"]) == ("Apache-2.0", ">=3.11")
    assert told["Summary"] == PROJECT["description"]
    assert told["Author"]
    assert told["Description-Content-Type"] == "text/markdown"
    assert str(told.get_payload()).lstrip().startswith("# forerun")
    assert set(told.get_all("Provides-Extra", [])) == set(EXTRAS)


def imported(file: Path) -> Iterator[str]:
    """The packages that a module imports anywhere in it."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield (node.module or "").split(".")[0]


def test_every_package_that_is_imported_is_declared() -> None:
    users = [name for extra, given in EXTRAS.items() if extra not in ("dev", "docs") for name in given]
    declared = {canonical(Requirement(one).name) for one in (*PROJECT["dependencies"], *users)}
    used = {name for file in SOURCE.rglob("*.py") for name in imported(file)} - set(sys.stdlib_module_names)

    assert {canonical(name) for name in used - ELSEWHERE - BROUGHT - {"forerun"}} - declared == set()


@pytest.mark.parametrize(
    "given", sorted({*PROJECT["dependencies"], *(one for some in EXTRAS.values() for one in some)})
)
def test_what_is_pinned_is_what_the_project_asks_for(given: str) -> None:
    requirement = Requirement(given)

    assert requirement.specifier.contains(PINS[canonical(requirement.name)])
    assert [one.operator for one in requirement.specifier] == [">="]


def test_a_package_has_one_pin() -> None:
    assert len(PINS) == len(CONSTRAINTS)


def test_an_extra_of_users_asks_no_more_than_development_has() -> None:
    development = set(EXTRAS["dev"])

    assert {one for extra, given in EXTRAS.items() if extra != "docs" for one in given} <= development


def test_the_wheel_runs_outside_of_the_repository(environment: Path, tmp_path: Path) -> None:
    code = """
import forerun
from forerun.cli import run
from forerun.families.table import read_table
print(forerun.__file__, len(read_table().families))
run(["--version"])
"""
    where, families, told = ran(environment / "bin" / "python", "-c", code, folder=tmp_path).split()

    assert Path(where).is_relative_to(environment)
    assert int(families) > 100
    assert told == forerun.__version__


@pytest.mark.real
def test_the_wheel_writes_with_the_bundled_model(environment: Path, tmp_path: Path) -> None:
    command = (
        "generate",
        "smollm2",
        "The capital of France is",
        "--raw",
        "--max-new-tokens",
        "8",
        "--dtype",
        "float32",
    )
    written = ran(environment / "bin" / "forerun", *command, folder=tmp_path)

    assert written == " Paris.\n\nThe answer is:\n"
