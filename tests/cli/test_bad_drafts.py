"""What can't be drafted from is refused alike on the command line and in Python, in the same sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import forerun as library
from forerun.testing import save_tiny, save_tiny_draft, tiny_model, tiny_tokenizer

from .conftest import Ran, check_same_text
from .test_refusals import refused

Call = Callable[..., Ran]
TEXT = "hello world, hello world\n" * 20


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A draft of a model of two layers."""
    folder = tmp_path_factory.mktemp("drafts")
    target = tiny_model("llama", vocab_size=len(tiny_tokenizer()), num_hidden_layers=2)
    save_tiny_draft(folder / "small", target, (0, 1))
    return folder


def check(forerun: Call, model: str, sentence: str, drafter: str, option: str, value: Any, flag: str = "") -> None:
    ran = forerun("generate", model, "hello", "--drafter", drafter, flag or f"--{option}", value)
    with pytest.raises(ValueError, match=sentence) as refusal:
        library.load(model, drafter=drafter, drafter_options={option: value})
    assert refused(ran) == f"forerun: {refusal.value}"


def corpus(forerun: Call, model: str | Path, folder: Path) -> Path:
    (folder / "text.txt").write_text(TEXT)
    assert forerun("corpus", "build", model, folder / "text.txt", "-o", folder / "corpus").status == 0
    return folder / "corpus"


@pytest.mark.parametrize("file", ["tokens.bin", "order.bin", "first.bin", "corpus.json"])
def test_a_truncated_corpus(forerun: Call, tiny: str, tmp_path: Path, file: str) -> None:
    place = corpus(forerun, tiny, tmp_path)
    (place / file).write_bytes((place / file).read_bytes()[:-7])
    check(forerun, tiny, "holds no corpus that can be read", "corpus", "path", str(place))


def test_a_corpus_of_another_tokenizer(forerun: Call, tiny: str, tmp_path: Path) -> None:
    other = save_tiny(tmp_path / "other", vocab_size=400)
    check(forerun, tiny, "is of another tokenizer", "corpus", "path", str(corpus(forerun, other, tmp_path)))


def test_a_directory_that_is_no_corpus(forerun: Call, tiny: str, tmp_path: Path) -> None:
    check(forerun, tiny, "make one with: forerun corpus build", "corpus", "path", str(tmp_path))


def test_a_draft_for_another_model(forerun: Call, tiny: str, place: Path) -> None:
    sentence, draft = "the draft small was trained for another model, ", str(place / "small")
    check(forerun, tiny, sentence, "draft_model", "model", draft, "--drafter-model")


def test_a_history_below_nothing(forerun: Call, tiny: str) -> None:
    check(forerun, tiny, "history must be at least 0 tokens, got -1", "suffix", "history", -1)


def test_a_history_of_size_0_remembers_nothing_and_changes_no_text(forerun: Call, tiny: str) -> None:
    check_same_text(forerun, tiny, "--drafter", "suffix", "--history", 0)
    engine = library.load(tiny, drafter="suffix", drafter_options={"history": 0}, policy_options={"k": 4})
    first, second = (engine.generate("hello", max_new_tokens=8) for _ in range(2))
    assert first.ids == second.ids
    assert first.stats.rounds == second.stats.rounds


def test_an_empty_prediction(forerun: Call, tiny: str) -> None:
    said = refused(forerun("generate", tiny, "hello", "--prediction", ""))
    assert "prediction must not be empty" in said
    for empty in ("", []):
        with pytest.raises(ValueError, match="prediction must not be empty"):
            library.load(tiny).generate("hello", prediction=empty)
