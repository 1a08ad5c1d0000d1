"""The site has a place for every page, public name, method and command. That it builds is what `make docs` tests."""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import forerun
from forerun.errors import ForerunError

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
# the base loader takes tags that name Python objects for text
CONFIG: dict[str, Any] = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
PAGES = sorted(DOCS.rglob("*.md"))
SHOWN = {name for page in PAGES for name in re.findall(r"^::: (\S+)$", page.read_text(encoding="utf-8"), flags=re.M)}
METHODS = [("drafters", forerun.DRAFTERS), ("policies", forerun.POLICIES)]


def loaded(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


reference = loaded(DOCS / "reference.py")


def entries(nav: Any) -> Iterator[str]:
    """The pages that the navigation names, at any depth."""
    if isinstance(nav, str):
        yield nav
    for inner in nav if isinstance(nav, list) else nav.values() if isinstance(nav, dict) else ():
        yield from entries(inner)


def test_every_page_is_in_the_navigation_once() -> None:
    assert sorted(entries(CONFIG["nav"])) == sorted(page.relative_to(DOCS).as_posix() for page in PAGES)


def test_a_broken_link_ends_the_build() -> None:
    assert CONFIG["strict"] == "true"
    assert set(CONFIG["validation"].values()) == {"warn"}
    assert "mkdocs build --strict" in (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "make docs" in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("name", sorted(forerun.__all__))
def test_every_public_name_has_its_place_in_the_api_reference(name: str) -> None:
    value = getattr(forerun, name)
    error = isinstance(value, type) and issubclass(value, ForerunError)

    assert (value.__module__ if error else f"forerun.{name}") in SHOWN


@pytest.mark.parametrize("name", sorted(SHOWN))
def test_the_api_reference_shows_what_there_is(name: str) -> None:
    module, _, attribute = name.rpartition(".")

    assert attribute in dir(importlib.import_module(module))


def test_a_picture_is_text() -> None:
    text = (DOCS / "how-it-works.md").read_text(encoding="utf-8")

    assert text.count("```mermaid\nflowchart") == 2
    # but for what a browser shows
    assert [page.name for page in PAGES if re.search(r"!\[|<img", page.read_text(encoding="utf-8"))] == ["web-page.md"]
    assert [path.name for path in DOCS.rglob("*") if path.suffix in {".png", ".svg", ".jpg"}] == ["page.png"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(DOCS).as_posix())
def test_pages_ask_for_tables_that_are_made(page: Path) -> None:
    text = page.read_text(encoding="utf-8")

    assert set(reference.PLACE.findall(text)) <= set(reference.TABLES)
    assert text.count("<!--") == len(reference.PLACE.findall(text))


def test_every_table_is_on_a_page() -> None:
    asked = {name for page in PAGES for name in reference.PLACE.findall(page.read_text(encoding="utf-8"))}

    assert asked == set(reference.TABLES)


def test_an_unknown_table_ends_the_build() -> None:
    with pytest.raises(KeyError, match="verifiers"):
        reference.on_page_markdown("before <!-- made here: verifiers --> after", page=None, config=None, files=None)


def test_a_page_without_tables_stays_as_it_is() -> None:
    assert reference.on_page_markdown("# A page\n\n<!-- a remark -->", page=None) == "# A page\n\n<!-- a remark -->"


@pytest.mark.parametrize(("kind", "registry"), METHODS, ids=[kind for kind, _ in METHODS])
def test_every_method_is_shown_with_its_options_and_source(kind: str, registry: Any) -> None:
    page = reference.on_page_markdown((DOCS / "reference" / f"{kind}.md").read_text(encoding="utf-8"))
    sections = dict(part.split("\n", 1) for part in re.split(r"^## ", page, flags=re.M)[1:])

    assert sorted(sections) == sorted(registry.names)
    for name, section in sections.items():
        entry = registry.entry(name)
        assert re.findall(r"^\| `(\w+)` ", section, flags=re.M) == list(entry.options)
        assert f"Source: {reference.linked(entry.source)}" in section


def test_defaults_are_told_as_one_writes_them() -> None:
    drafters = reference.methods("drafters")

    assert "| `model` | a name or a path | needed |" in drafters
    assert "| `max_ngram` | a whole number | `3` |" in drafters
    assert '| `verification` | a name | `"exact"` |' in drafters
    assert "| `...` | the options of the one inside | none |" in drafters


def test_every_command_is_shown_with_its_flags() -> None:
    page = reference.commands()
    sections = dict(part.split("\n", 1) for part in re.split(r"^## forerun ", page, flags=re.M)[1:])
    commands = dict(reference.leaves("forerun", reference.ROOT))
    written = re.findall(r"^forerun ([a-z]+)", (DOCS / "command-line.md").read_text(encoding="utf-8"), flags=re.M)

    assert [f"forerun {name}" for name in sections] == list(commands)
    assert set(written) <= {name.split()[0] for name in sections}
    assert {"policies", "policies compare", "train exit-adapter"} < set(sections)
    for name, command in commands.items():
        flags = [parameter.opts[0] for parameter in command.params if not parameter.hidden]
        assert [flag for flag in flags if f"| `{flag}" not in sections[name.removeprefix("forerun ")]] == []


def test_commands_tell_their_usage_defaults_and_what_is_needed() -> None:
    page = reference.commands()

    assert "```\nforerun generate [OPTIONS] {model} {prompt}\n```" in page
    assert re.search(r"^\| `model <str>` \| .* \| needed \|$", page, flags=re.M)
    assert re.search(r"^\| `--policy <str>` \| .* \| `fixed` \|$", page, flags=re.M)
    assert re.search(r"^\| `--max-new-tokens <int>` \| .* \| the checkpoint's, else 128 \|$", page, flags=re.M)
    assert re.search(r"^\| `--speculate --no-speculate` \| .* \| on \|$", page, flags=re.M)


def test_papers_are_links() -> None:
    assert reference.linked("Miao et al., arXiv 2305.09781; Cai, 2401.10774v2, 2023") == (
        "Miao et al., [arXiv 2305.09781](https://arxiv.org/abs/2305.09781); Cai, 2401.10774v2, 2023"
    )


def test_help_is_no_markup() -> None:
    assert reference.plain("a * b_c <d> [e] | f\n  g") == r"a \* b\_c \<d\> \[e\] \| f g"
    assert reference.plain("see `a_b <c>` for d_e") == r"see `a_b <c>` for d\_e"
    assert reference.plain(None) == ""
