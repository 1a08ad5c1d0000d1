from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from forerun import DRAFTERS, POLICIES
from forerun.core.method_source import Written, methods_written_in, written_in
from forerun.core.registry import Registered, Registry

HEAD = "from .base import METHODS\nLEAST, MOST = 2, 9\nPAIR = (1, 2)\nNAMED: str = 'none'\n"


def written(signature: str, doc: str = '"""Do it.\n\n    At length.\n    """') -> Written:
    text = f"{HEAD}\n@METHODS('one', source='Somebody')\ndef build({signature}):\n    {doc}\n    return None\n"
    [found] = written_in("package.module", text)
    return found


def run_anew(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a module's code under another name, so that it registers what it has."""
    found = find_spec(module)
    assert found is not None
    spec = spec_from_file_location(f"{module}_anew", found.origin)
    assert spec is not None
    assert spec.loader is not None
    again = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, again)
    spec.loader.exec_module(again)


@pytest.mark.parametrize("registry", [DRAFTERS, POLICIES], ids=lambda registry: registry.kind)
def test_the_source_tells_what_importing_tells(registry: Registry[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    package = f"forerun.{ {'drafter': 'drafters', 'policy': 'policies'}[registry.kind] }"
    found = methods_written_in(package)

    assert sorted(one.name for one in found) == list(registry.names)
    for one in found:
        import_module(one.module)  # which another one's code may import
    monkeypatch.setattr(registry, "_entries", {})
    for module in dict.fromkeys(one.module for one in found):  # one may have two
        run_anew(module, monkeypatch)
    for one in found:
        imported = registry.entry(one.name)
        assert isinstance(imported, Registered)
        assert imported.build.__name__ == one.function
        assert (one.name, one.source, one.summary) == (imported.name, imported.source, imported.summary)
        assert list(one.options.items()) == list(imported.options.items())
        assert one.passes_options_on == imported.passes_options_on
        assert one.source
        assert one.summary


def test_a_methods_name_source_and_summary_are_read() -> None:
    found = written("parts")

    assert (found.module, found.function, found.name, found.source) == ("package.module", "build", "one", "Somebody")
    assert found.summary == "Do it."
    assert not found.options
    assert not found.passes_options_on
    assert written("parts", "pass").summary == ""


@pytest.mark.parametrize(
    ("annotation", "wanted"),
    [
        ("int", int),
        ("Any", Any),
        ("Path", Path),
        ("float | None", float | None),
        ("int | str | None", int | str | None),
        ("tuple[int, ...]", tuple[int, ...]),
        ("tuple[int, str]", tuple[int, str]),
        ("tuple[bool]", tuple[bool]),
    ],
)
def test_an_options_type_is_read(annotation: str, wanted: Any) -> None:
    assert written(f"*, option: {annotation}").options["option"].annotation == wanted


@pytest.mark.parametrize(
    ("default", "wanted"),
    [("3", 3), ("-0.5", -0.5), ("''", ""), ("None", None), ("()", ()), ("LEAST", 2), ("MOST", 9), ("PAIR", (1, 2))],
)
def test_an_options_default_is_read(default: str, wanted: Any) -> None:
    assert written(f"*, option: Any = {default}").options["option"].default == wanted


def test_an_option_may_have_no_default_and_no_type() -> None:
    found = written("parts, *, needed, named: str = NAMED, **options")

    assert found.options["needed"] == inspect.Parameter("needed", inspect.Parameter.KEYWORD_ONLY)
    assert found.options["named"].default == "none"
    assert found.passes_options_on


@pytest.mark.parametrize("signature", ["*, k: Sized", "*, k: list[Sized]", "*, k: int = len('a')", "*, k: int = OTHER"])
def test_what_only_running_tells_is_not_guessed(signature: str) -> None:
    with pytest.raises(ValueError, match=r"line|malformed"):
        written(signature)
    with pytest.raises(ValueError, match="what METHODS registers can't be told from the source"):
        written_in("package.module", "@METHODS(NAME, source='')\ndef build(): ...")


def test_other_decorators_are_no_methods() -> None:
    assert written_in("package.module", "@final\ndef one(): ...\n@cache(size=1)\ndef two(): ...\ntwo()") == []


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a package "methods" whose registry reads its modules."""
    monkeypatch.syspath_prepend(str(tmp_path))
    folder = tmp_path / "methods"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "base.py").write_text(
        "from forerun.core.registry import Registry\nMETHODS = Registry('method', 'methods')\n"
    )
    method = "from .base import METHODS\n@METHODS({name!r}, source='')\ndef build(*, k: int = {k}): return k\n"
    (folder / "plain.py").write_text(method.format(name="plain", k=3))
    (folder / "odd.py").write_text(method.format(name="odd", k="len('four')"))
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == "methods"]:
        del sys.modules[name]


def test_a_module_is_imported_when_its_method_is_built(package: Path) -> None:
    methods: Registry[Any] = import_module("methods.base").METHODS

    assert methods.entry("plain").options["k"].default == 3
    assert "methods.plain" not in sys.modules
    assert methods.entry("plain").build(k=5) == 5
    assert "methods.plain" in sys.modules
    assert isinstance(methods.entry("plain"), Registered)


def test_a_module_that_can_not_be_read_is_imported(package: Path) -> None:
    methods: Registry[Any] = import_module("methods.base").METHODS

    assert methods.names == ("odd", "plain")
    assert methods.entry("odd").options["k"].default == 4


def test_two_modules_can_not_have_a_name(package: Path) -> None:
    (package / "plain_again.py").write_text((package / "plain.py").read_text())
    methods: Registry[Any] = import_module("methods.base").METHODS

    with pytest.raises(ValueError, match="method 'plain' is registered already"):
        methods.entry("odd")


def test_a_name_of_the_package_can_not_be_taken_by_others(package: Path) -> None:
    methods: Registry[Any] = import_module("methods.base").METHODS

    with pytest.raises(ValueError, match="method 'plain' is registered already"):
        methods("plain", source="")(lambda: None)
    assert methods("own", source="")(len) is len
    assert methods.names == ("odd", "own", "plain")
