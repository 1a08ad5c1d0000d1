"""Every example runs: on a tiny model always, on the bundled one where the tests ask for it."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from forerun.testing import save_tiny

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
SAYS = {
    "generate": "tokens per round, ended by",
    "stream": "drafted tokens were right",
    "compare_drafters": "output equal",
    "conversation": "And which of them is the largest?",
    "batch": "8 at once: ",
    "sampling": "as without drafts: True",
    "transformers_generate": "def add(a, b):",
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny(tmp_path_factory.mktemp("models") / "tiny", max_position_embeddings=1024))


def run(
    example: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    monkeypatch.setattr("sys.argv", [str(example), *arguments])
    runpy.run_path(str(example), run_name="__main__")
    return capsys.readouterr().out


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_does_what_it_shows(
    example: Path, tiny: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = run(example, [tiny], monkeypatch, capsys)

    assert SAYS[example.stem] in out
    assert "DIFFERENT" not in out
    assert "False" not in out


@pytest.mark.real
@pytest.mark.parametrize("name", ["generate", "sampling"])
def test_an_example_runs_on_the_bundled_model(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = run(EXAMPLES[0].with_name(f"{name}.py"), [], monkeypatch, capsys)

    assert SAYS[name] in out


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_short_and_says_how_to_run_it(example: Path) -> None:
    lines = example.read_text(encoding="utf-8").splitlines()

    assert len(lines) <= 30
    assert f"python examples/{example.name}" in lines[0]
