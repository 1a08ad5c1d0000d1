"""Drafts as GGUF: read back by transformers they say what they said, and llama.cpp's demands hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from forerun.errors import UnsupportedModel, UnsupportedOption
from forerun.export.engine_checks import check_gguf
from forerun.export.engine_draft import export_for_engines
from forerun.models.gguf.header import read_header
from forerun.models.loading.load import open_module

from ..models.gguf.tiny_gguf import source, write_model

IDS = torch.tensor([[5, 6, 200, 7, 30, 31]])


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FORERUN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return write_model(tmp_path / "target.gguf", source())


def saved(place: Path, family: str = "llama", **changes: Any) -> Any:
    model = source(family, seed=3, **{"num_hidden_layers": 2, "intermediate_size": 64, **changes}).eval()
    model.save_pretrained(place)
    return model


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model(input_ids=IDS).logits
    return found


@pytest.mark.parametrize(
    ("family", "form", "error"),
    [
        ("llama", "f32", 1e-4),
        ("llama", "f16", 1e-2),
        ("llama", "q8_0", 5e-2),
        ("llama", "q4_0", 0.8),
        ("qwen2", "f32", 1e-4),
        ("qwen3", "f32", 1e-4),
    ],
)
def test_a_file_says_what_the_draft_says(target: Path, tmp_path: Path, family: str, form: str, error: float) -> None:
    own = saved(tmp_path / "draft", family)
    written = export_for_engines(target, tmp_path / "draft", tmp_path / "out.gguf", weights=form)
    read = open_module(written.path, dtype=torch.float32, device="cpu").model
    wanted = logits(own)
    # of an unrelated model it would be 1.4
    assert (logits(read) - wanted).square().mean() < error**2 * wanted.square().mean()
    assert written.said == written.vocabulary == 260


def test_the_tokenizer_is_the_targets_key_for_key(target: Path, tmp_path: Path) -> None:
    saved(tmp_path / "draft")
    written = export_for_engines(target, tmp_path / "draft", tmp_path / "out.gguf", weights="f32")
    own, its = (read_header(file).keys for file in (written.path, target))
    tokens = {key: value for key, value in its.items() if key.startswith("tokenizer.")}
    assert {key: value for key, value in own.items() if key.startswith("tokenizer.")} == tokens
    assert "tokenizer.ggml.tokens" in tokens
    assert written.launch == {
        "llama.cpp": f"llama-server --model {target} --spec-type draft-simple --spec-draft-model {written.path} "
        "--spec-draft-n-max 3"
    }
    assert {file.name for file in tmp_path.glob("*.gguf")} == {"target.gguf", "out.gguf"}


def test_the_file_of_another_model_is_no_place_for_tokens(target: Path, tmp_path: Path) -> None:
    saved(tmp_path / "draft")
    other = write_model(tmp_path / "other.gguf", source(), tokenizer={"tokens": [f"t{n}" for n in range(260)]})
    with pytest.raises(UnsupportedOption, match=r"token \d+ is .* in other.gguf and .* in target"):
        export_for_engines(target, tmp_path / "draft", tmp_path / "out.gguf", gguf_target=other)
    assert not (tmp_path / "out.gguf").exists()


@pytest.mark.parametrize(
    ("tokenizer", "reason"),
    [
        ({"bos_token_id": 3}, "its bos_token_id is "),
        ({"tokens": [f"t{n}" for n in range(260)]}, "its token 5 is "),
        ({"tokens": [f"t{n}" for n in range(9)]}, "its vocabulary has 260 tokens, the target's 9"),
    ],
)
def test_what_llama_cpp_would_refuse_is_told(
    target: Path, tmp_path: Path, tokenizer: dict[str, Any], reason: str
) -> None:
    other = write_model(tmp_path / "other.gguf", source(), tokenizer=tokenizer)
    with pytest.raises(UnsupportedOption, match=f"no engine would take this draft: {reason}"):
        check_gguf(target, other)
    assert check_gguf(target, target)[0] == "vocabulary of 260, as the target's"


@pytest.mark.parametrize(
    ("family", "changes", "form", "reason"),
    [
        ("llama", {}, "q5_1", "f32, f16, q8_0, q4_0, got 'q5_1'"),
        ("gpt_neox", {}, "f16", "drafts of the family gpt_neox can't be written as GGUF"),
        (
            "llama",
            {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}},
            "f16",
            r"positions are scaled \(linear\)",
        ),
        ("llama", {"intermediate_size": 48}, "q8_0", "needs columns in groups of 32 and .* has 48; take f16"),
    ],
)
def test_what_has_no_form_in_a_file_is_refused(
    target: Path, tmp_path: Path, family: str, changes: dict[str, Any], form: str, reason: str
) -> None:
    saved(tmp_path / "draft", family, **changes)
    with pytest.raises((UnsupportedModel, UnsupportedOption), match=reason):
        export_for_engines(target, tmp_path / "draft", tmp_path / "out.gguf", weights=form)
    assert [file.name for file in tmp_path.glob("*out.gguf")] == []
