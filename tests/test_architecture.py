"""The arrows of the design, and the house rules that a parser can see."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path
from statistics import median
from typing import get_origin

import pytest

import forerun

ROOT = Path(forerun.__file__).parent
TESTS = Path(__file__).parent
# folders of tests that belong to no folder of the source
OF_THE_WHOLE = ("conformance", "law", "real")
FILES = sorted(ROOT.rglob("*.py"))
MAX_FILE, MAX_FUNCTION = 400, 60
FORBIDDEN_NAMES = re.compile(r"(^|_)(utils?|helpers?|manager|misc|common|v\d+)(_|$)|Manager|Helper")
FORBIDDEN_CALLS = {"eval", "exec", "hasattr", "torch.load", "pickle.load", "pickle.loads", "joblib.load"}

MAX_FILES = 24  # in a folder
TOP = {"__init__", "__main__", "errors", "jsonl", "plotting", "testing"}

# Rooms from the bottom to the top. A room imports rooms on lower shelves only.
SHELVES: tuple[tuple[str, ...], ...] = (
    ("errors",),
    ("jsonl", "plotting"),
    ("core",),
    ("models.packed",),
    ("models.files",),
    ("models.gguf",),
    ("models.lean",),
    ("models.loading",),
    ("drafters", "policies"),
    ("engine",),
    ("hf", "bench", "families", "serve", "engines"),
    ("traces",),
    ("train", "export"),
    ("tune", "design"),
    ("",),
    ("testing",),
    ("cli",),
    ("__main__",),
)
SHELF = {room: height for height, rooms in enumerate(SHELVES) for room in rooms}
# room -> the only rooms that it imports, where the shelf alone would let it take more
ONLY = {
    "core": {"errors"},
    "policies": {"errors", "core", "models.files"},
    # what a Python with another transformers than forerun's can import
    "engines": {
        *("errors", "core", "drafters", "policies", "engine"),
        *("models.files", "models.lean", "models.loading", "models.packed"),
    },
    "traces": {"errors", "jsonl", "core", "models.packed", "models.files", "drafters", "policies", "engine", "bench"},
    "": {"errors", "core", "models.packed", "drafters", "policies", "engine", "hf"},
    "__main__": {"cli"},
}
# branches, which leave each other alone but for these pairs
APART = {"train", "export", "tune", "design", "bench", "hf", "families", "traces", "serve", "engines"}
TOGETHER = {
    *{("tune", "bench"), ("design", "bench"), ("traces", "bench"), ("tune", "traces"), ("train", "traces")},
    ("families", "hf"),
}


def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def name_of(file: Path) -> str:
    """Dotted and without the package: "" for the package itself, "models" for models/__init__.py."""
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(file): file for file in FILES}


def imports(module: str, tree: ast.Module, package: bool = False) -> Iterator[str]:
    """The modules of forerun that a module imports when it runs, by their dotted names."""
    checking = {id(inner) for node in ast.walk(tree) if _is_type_checking(node) for inner in ast.walk(node)}
    here = ["forerun", *(module.split(".") if module else [])]
    for node in ast.walk(tree):
        if id(node) in checking:
            continue
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = here[: len(here) - node.level + package] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            targets = [f"{source}.{alias.name}" for alias in node.names]
        else:
            continue
        for target in targets:
            if target.split(".")[0] == "forerun":
                name = target.removeprefix("forerun").removeprefix(".")
                yield name if name in MODULES else name.rpartition(".")[0]


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def room_of(module: str) -> str:
    """The folder that a module lies in, as SHELVES names it; a module at the top is a room of its own."""
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] == "models" else parts[0]


def allowed(module: str, target: str) -> bool:
    """Whether the arrows let a module import another one."""
    room, other = room_of(module), room_of(target)
    if room == other:
        return True
    if SHELF[other] >= SHELF[room] or (room in ONLY and other not in ONLY[room]):
        return False
    if other in ("testing", "") and room not in ("cli", "testing"):
        return False
    return not (room in APART and other in APART) or (room, other) in TOGETHER


# what forerun/__init__.py imports when a name is asked for
LAZY = {"": set(vars(forerun)["_HOME"].values())}
GRAPH = {
    module: LAZY.get(module, set())
    | {target for target in imports(module, parsed(file), file.name == "__init__.py") if target != module}
    for module, file in MODULES.items()
}


@pytest.mark.parametrize("module", sorted(GRAPH))
def test_imports_follow_the_arrows(module: str) -> None:
    assert [target for target in sorted(GRAPH[module]) if not allowed(module, target)] == []


def test_no_module_imports_itself_through_others() -> None:
    assert len(list(TopologicalSorter(GRAPH).static_order())) == len(GRAPH)


@pytest.mark.parametrize(
    ("module", "target", "fine"),
    [
        ("core.sampling", "core.law", True),
        ("core.decode", "errors", True),
        ("core.decode", "drafters.base", False),
        ("core.decode", "models.packed.sequence", False),
        ("models.packed.runner", "core.forward", True),
        ("models.packed.runner", "models.loading.checks", False),
        ("models.lean.shape", "models.packed.limits", True),
        ("models.gguf.keys", "models.lean.shape", False),
        ("models.loading.load", "models.lean.runner", True),
        ("models.packed.runner", "drafters.base", False),
        ("drafters.lookup", "models.packed.sequence", True),
        ("drafters.lookup", "policies.base", False),
        ("policies.fixed", "drafters.base", False),
        ("policies.fixed", "models.packed.runner", False),
        ("policies.disco", "models.files.classifier_heads", True),
        ("engine.engine", "drafters.base", True),
        ("engine.engine", "bench.compare", False),
        ("engine.engine", "hf.generate", False),
        ("", "engine.engine", True),
        ("", "bench.compare", False),
        ("bench.compare", "engine.system.value", True),
        ("bench.compare", "tune.run", False),
        ("tune.run", "bench.compare", True),
        ("tune.run", "train.data.examples", False),
        ("train.heads.disco", "traces.read", True),
        ("design.round_timing", "bench.comparison", True),
        ("design.log", "train.data.examples", False),
        ("bench.compare", "cli.screen", False),
        ("engine.engine", "testing", False),
        ("engine.engine", "", False),
        ("cli.listing", "testing", True),
        ("__main__", "cli", True),
        ("__main__", "engine.engine", False),
    ],
)
def test_the_arrows_are_those_of_the_design(module: str, target: str, fine: bool) -> None:
    assert allowed(module, target) == fine


def test_every_form_of_import_is_seen() -> None:
    source = """
from __future__ import annotations
import os
import forerun.core.verify
from forerun.drafters import lookup
from ..core.values import Step
from . import base
from .base import Drafter, DRAFTERS
from ..core import law
if TYPE_CHECKING:
    from ..policies import base
def later():
    from ..engine.stats import Stats
"""
    seen = set(imports("drafters.none", ast.parse(source)))

    assert seen == {"core.verify", "drafters.lookup", "core.values", "drafters.base", "core.law", "engine.stats"}
    assert set(imports("drafters", ast.parse("from .base import Drafter"), package=True)) == {"drafters.base"}
    assert set(imports("", ast.parse("from .core.values import Step"), package=True)) == {"core.values"}


def test_the_top_holds_what_all_share() -> None:
    assert {file.stem for file in ROOT.glob("*.py")} == TOP


def test_every_room_has_its_shelf() -> None:
    assert {room_of(module) for module in MODULES} - {"models"} == set(SHELF)


@pytest.mark.parametrize("folder", sorted({file.parent for file in FILES}), ids=lambda folder: folder.name)
def test_no_folder_is_crowded(folder: Path) -> None:
    assert len([file for file in folder.iterdir() if file.is_file()]) <= MAX_FILES


def test_files_are_short_as_a_rule() -> None:
    lengths = [len(file.read_text(encoding="utf-8").splitlines()) for file in FILES if file.name != "__init__.py"]

    assert median(lengths) <= 100


@pytest.mark.parametrize("file", sorted(TESTS.rglob("test_*.py")), ids=lambda file: str(file.relative_to(TESTS)))
def test_tests_lie_where_their_source_lies(file: Path) -> None:
    folder = file.parent.relative_to(TESTS)

    assert folder.parts[:1] in {(), *((name,) for name in OF_THE_WHOLE)} or (ROOT / folder).is_dir()


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_rooms_are_small(file: Path) -> None:
    assert len(file.read_text(encoding="utf-8").splitlines()) <= MAX_FILE
    functions = [node for node in ast.walk(parsed(file)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    assert [node.name for node in functions if (node.end_lineno or 0) - node.lineno + 1 > MAX_FUNCTION] == []


def defined(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_names_say_what_a_thing_is(file: Path) -> None:
    names = [file.stem, file.parent.name, *defined(parsed(file))]

    assert [name for name in names if FORBIDDEN_NAMES.search(name)] == []


@pytest.mark.parametrize("name", ["utils", "text_utils", "helper", "load_v2", "DraftManager", "common", "v2"])
def test_a_name_that_says_nothing_is_seen(name: str) -> None:
    assert FORBIDDEN_NAMES.search(name)


@pytest.mark.parametrize("name", ["lookup", "hf_generate", "deepseek_v", "uncommon", "managed"])
def test_a_good_name_passes(name: str) -> None:
    assert not FORBIDDEN_NAMES.search(name)


def calls(tree: ast.Module) -> Iterator[str]:
    """Plain and dotted names that are called."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name):
                yield node.func.id
            elif isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
                yield f"{node.func.value.id}.{node.func.attr}"


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_nothing_is_unpickled_evaluated_or_probed(file: Path) -> None:
    assert sorted(FORBIDDEN_CALLS.intersection(calls(parsed(file)))) == []


def test_a_forbidden_call_is_seen() -> None:
    assert set(calls(ast.parse("torch.load(file)\nif hasattr(x, 'y'): model.eval()"))) >= {"torch.load", "hasattr"}


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_every_module_says_what_it_is_for(file: Path) -> None:
    assert ast.get_docstring(parsed(file)) or not file.read_text(encoding="utf-8").strip()


def test_the_public_names_are_there_and_in_order() -> None:
    def order(name: str) -> tuple[int, str]:
        return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)

    assert list(forerun.__all__) == sorted(set(forerun.__all__), key=order)
    assert [name for name in forerun.__all__ if getattr(forerun, name, None) is None] == []


@pytest.mark.parametrize("name", sorted(forerun.__all__))
def test_every_public_name_is_documented(name: str) -> None:
    value = getattr(forerun, name)
    # an alias of types has no docstring of its own, so the page on Python tells of it
    page = (TESTS.parent / "docs" / "python.md").read_text(encoding="utf-8")
    told = value.__doc__ if get_origin(value) is None else f"`forerun.{name}`" in page

    assert name.isupper() or told
