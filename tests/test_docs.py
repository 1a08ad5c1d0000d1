"""The documents say what is so: links lead somewhere, flags exist, and Python examples run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

import forerun
from forerun.cli.app import app
from forerun.cli.deferred import opened
from forerun.drafters.base import DRAFTERS
from forerun.policies.base import POLICIES
from forerun.testing import save_tiny

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
OTHER_TOOLS = {"--constraint", "--editable", "--no-deps", "--strict"}
OF_ENGINES = {"--additional-config", "--spec-draft-model", "--speculative-config", "--vllm-python"}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("models") / "tiny"
    return str(save_tiny(path, max_position_embeddings=1024, num_hidden_layers=20))


def blocks(document: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", document.read_text(encoding="utf-8"), flags=re.DOTALL)


def test_the_readme_fits_on_a_few_screens() -> None:
    assert len(DOCUMENTS[0].read_text(encoding="utf-8").splitlines()) <= 150


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", document.read_text(encoding="utf-8"))
    local = [target for target in targets if not target.startswith("https://")]

    assert [target for target in local if not (document.parent / target).exists()] == []


def leaves(command: Any) -> list[Any]:
    """The commands that run something, those under a common name included."""
    command = opened(command)
    inner = vars(command).get("commands")
    return [command] if inner is None else [leaf for one in inner.values() for leaf in leaves(one)]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_flag_exists(document: Path) -> None:
    commands = leaves(app)
    known = {flag for command in commands for one in command.params for flag in (*one.opts, *one.secondary_opts)}
    written = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*[a-z]\b", document.read_text(encoding="utf-8")))

    assert written - known - OTHER_TOOLS - OF_ENGINES - {"--help"} == set()


@pytest.mark.parametrize("document", [path for path in DOCUMENTS if blocks(path)], ids=lambda path: path.name)
def test_python_examples_run_in_their_order(
    document: Path, tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(DRAFTERS, "_entries", dict(vars(DRAFTERS)["_entries"]))
    model, tokenizer = AutoModelForCausalLM.from_pretrained(tiny), AutoTokenizer.from_pretrained(tiny)
    names: dict[str, Any] = {"model": model, "inputs": tokenizer("hello", return_tensors="pt")}
    for block in blocks(document):
        exec(compile(block.replace('"smollm2"', repr(tiny)), document.name, "exec"), names)


def test_the_drafter_of_the_architecture_page_drafts(tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DRAFTERS, "_entries", dict(vars(DRAFTERS)["_entries"]))
    exec(blocks(ROOT / "docs" / "architecture.md")[0], {})
    engine = forerun.load(tiny, drafter="again", drafter_options={"times": 2})
    result = engine.generate("hello", max_new_tokens=8)

    assert result.stats.drafted > 0
    assert result.ids == engine.generate("hello", max_new_tokens=8, speculate=False).ids


def test_the_readme_and_the_methods_page_name_every_method() -> None:
    for text in (DOCUMENTS[0].read_text(encoding="utf-8"), (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")):
        assert [
            name for name in (*DRAFTERS.names, *POLICIES.names) if f"`{name}`" not in text and f"**{name}**" not in text
        ] == []


def test_the_changelog_names_the_coming_version() -> None:
    assert "## Unreleased" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_commits_are_checked_with_the_projects_own_tools() -> None:
    hooks = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")

    assert re.findall(r"entry: (.*)", hooks) == [
        ".venv/bin/ruff check --fix",
        ".venv/bin/ruff format",
        ".venv/bin/mypy",
    ]
    assert "repo: local" in hooks
