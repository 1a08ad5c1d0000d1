from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from forerun.cli import run
from forerun.testing import save_tiny


@dataclass(frozen=True, slots=True)
class Ran:
    status: int
    out: str
    err: str

    @property
    def said(self) -> str:
        """What stands on stderr beside the lines about loading."""
        return "\n".join(line for line in self.err.splitlines() if not line.startswith(("loading ", "converting ")))


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny(tmp_path_factory.mktemp("models") / "tiny", max_position_embeddings=1024))


def answered(tiny: str, folder: Path, layers: str) -> Path:
    """The folder, with the tiny model's answers in it and the states of these layers beside them."""
    (folder / "prompts.jsonl").write_text("".join(json.dumps({"prompt": f"say {n}"}) + "\n" for n in range(8)))
    given = ["train", "answers", tiny, folder / "prompts.jsonl", "-o", folder / "answers.jsonl", "--max-new-tokens", 8]
    assert run([*map(str, given), "--states", str(folder / "states"), "--layers", layers]) == 0
    return folder


def check_same_text(forerun: Callable[..., Ran], model: str, *method: object) -> None:
    """With the flags of a method, forerun generate writes what it writes without a draft."""
    said = [
        forerun("generate", model, "hello", "--max-new-tokens", 12, "--json", *flags)
        for flags in (("--drafter", "none"), method)
    ]
    assert [one.status for one in said] == [0, 0]
    texts = [json.loads(one.out)["text"] for one in said]
    assert texts[0] == texts[1]


@pytest.fixture
def forerun(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    def call(*arguments: str | Path) -> Ran:
        capsys.readouterr()
        status = run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Ran(status, captured.out, captured.err)

    return call
