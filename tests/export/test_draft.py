from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from forerun.errors import ModelNotFound, UnsupportedModel
from forerun.export import draft as exporting
from forerun.export.draft import export_draft
from forerun.testing import save_tiny, tiny_model

EXIT = 2


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("whole") / "tiny")


def saved(path: Path, family: str, **changes: Any) -> Path:
    tiny_model(family, **changes).save_pretrained(path)
    return path


def left_behind(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if name.startswith(".")]


def test_a_draft_has_the_first_layers_and_everything_around_them(whole: Path, tmp_path: Path) -> None:
    written = export_draft(whole, EXIT, tmp_path / "new" / "draft")
    cut = AutoModelForCausalLM.from_pretrained(written.directory)
    kept, all_of_it = cut.state_dict(), AutoModelForCausalLM.from_pretrained(whole).state_dict()

    assert cut.config.num_hidden_layers == EXIT
    assert set(kept) == {name for name in all_of_it if not name.startswith(("model.layers.2.", "model.layers.3."))}
    assert all(torch.equal(value, all_of_it[name]) for name, value in kept.items())
    assert (written.exit_layer, written.num_layers) == (EXIT, 4)
    assert written.parameters == sum(parameter.numel() for parameter in cut.parameters())
    assert written.bytes > 4 * written.parameters
    assert left_behind(tmp_path / "new") == []


def test_its_own_forward_is_the_head_on_the_exits_state(whole: Path, tmp_path: Path) -> None:
    """In transformers alone, without forerun's forward."""
    cut = AutoModelForCausalLM.from_pretrained(export_draft(whole, EXIT, tmp_path / "draft").directory)
    model = AutoModelForCausalLM.from_pretrained(whole)
    ids = torch.tensor([[5, 6, 7, 8, 9, 10]])
    with torch.inference_mode():
        state = model(ids, output_hidden_states=True).hidden_states[EXIT]
        assert torch.allclose(cut(ids).logits, model.lm_head(model.model.norm(state)), atol=1e-5)
        assert not torch.allclose(cut(ids).logits, model(ids).logits, atol=1e-2)


def test_tokenizer_template_and_generation_config_come_along(whole: Path, tmp_path: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(whole)
    model.generation_config.repetition_penalty = 1.25
    source = tmp_path / "source"
    model.save_pretrained(source)
    tokenizer = AutoTokenizer.from_pretrained(whole)
    tokenizer.save_pretrained(source)
    directory = export_draft(source, EXIT, tmp_path / "draft").directory
    told = json.loads((directory / "generation_config.json").read_text())
    copied = AutoTokenizer.from_pretrained(directory)

    assert told["repetition_penalty"] == 1.25
    assert copied.get_vocab() == tokenizer.get_vocab()
    assert copied.chat_template == tokenizer.chat_template


@pytest.mark.parametrize("family", ["qwen3", "gemma2", "gpt2", "smollm3", "llama4_text", "granite", "opt"])
def test_families_with_lists_by_layer_are_cut_exactly(family: str, tmp_path: Path) -> None:
    source = saved(tmp_path / "whole", family)
    told = json.loads((export_draft(source, 3, tmp_path / "draft").directory / "config.json").read_text())
    lists = {name: value for name, value in told.items() if isinstance(value, list) and "layer" in name}

    assert AutoModelForCausalLM.from_pretrained(tmp_path / "draft").config.num_hidden_layers == 3
    assert all(len(value) <= 3 for value in lists.values())


def test_a_list_of_as_many_token_ids_as_layers_stays_whole(tmp_path: Path) -> None:
    source = saved(tmp_path / "whole", "llama", eos_token_id=[1, 2, 3, 4])
    directory = export_draft(source, EXIT, tmp_path / "draft").directory

    assert json.loads((directory / "config.json").read_text())["eos_token_id"] == [1, 2, 3, 4]


def test_tied_embeddings_stay_tied(tmp_path: Path) -> None:
    source = saved(tmp_path / "whole", "llama", tie_word_embeddings=True)
    cut = AutoModelForCausalLM.from_pretrained(export_draft(source, EXIT, tmp_path / "draft").directory)

    assert cut.lm_head.weight is cut.model.embed_tokens.weight


@pytest.mark.parametrize(("dtype", "expected"), [(None, torch.float32), ("bfloat16", torch.bfloat16)])
def test_the_number_format_is_kept_or_as_asked(
    whole: Path, tmp_path: Path, dtype: str | None, expected: torch.dtype
) -> None:
    directory = export_draft(whole, EXIT, tmp_path / "draft", dtype).directory

    assert AutoModelForCausalLM.from_pretrained(directory).dtype == expected


def test_a_family_whose_layers_depend_on_their_number_is_refused(tmp_path: Path) -> None:
    """MiniCPM3 scales each residual branch by the square root of the number of layers."""
    mla = {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8}
    source = saved(tmp_path / "whole", "minicpm3", **mla, num_key_value_heads=4)
    with pytest.raises(UnsupportedModel, match="can't be cut after layer 2: its layers depend on how many there are"):
        export_draft(source, EXIT, tmp_path / "draft")
    assert os.listdir(tmp_path) == ["whole"]


def test_a_family_that_can_not_skip_layers_is_refused(tmp_path: Path) -> None:
    source = saved(tmp_path / "whole", "opt", do_layer_norm_before=False)
    with pytest.raises(UnsupportedModel, match="so none is skipped"):
        export_draft(source, EXIT, tmp_path / "draft")
    assert os.listdir(tmp_path) == ["whole"]


def test_a_draft_that_says_something_else_is_never_published(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = exporting._write

    def spoiling(*given: Any) -> int:
        module = given[0]
        with torch.no_grad():
            # the least change of one number of the last layer kept
            weight = module.model.model.layers[EXIT - 1].mlp.down_proj.weight
            before = weight[0, 0].clone()
            weight[0, 0] = before * 1.001
            parameters = write(*given)
            weight[0, 0] = before
        return parameters

    monkeypatch.setattr(exporting, "_write", spoiling)
    with pytest.raises(UnsupportedModel, match="the draft would not be the early exit"):
        export_draft(whole, EXIT, tmp_path / "draft")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("exit_layer", [0, -1, 4, 30])
def test_an_exit_that_does_not_exist_is_refused_with_the_range(whole: Path, tmp_path: Path, exit_layer: int) -> None:
    with pytest.raises(ValueError, match=f"exit_layer must be in 1..3 for a model of 4 layers, got {exit_layer}"):
        export_draft(whole, exit_layer, tmp_path / "draft")
    assert os.listdir(tmp_path) == []


def test_what_is_there_is_never_written_over(whole: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "file").write_text("mine")
    for name in ("there", "file"):
        with pytest.raises(ValueError, match=f"{name} is there already"):
            export_draft(whole, EXIT, tmp_path / name)
    assert os.listdir(tmp_path / "there") == []
    assert (tmp_path / "file").read_text() == "mine"


def test_a_full_disk_leaves_nothing_behind(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(module: Any, exit_layer: int, directory: Path) -> int:
        (directory / "model.safetensors").write_bytes(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(exporting, "_write", full)
    with pytest.raises(ValueError, match=r"can't write .*draft: .*No space left on device"):
        export_draft(whole, EXIT, tmp_path / "draft")
    assert os.listdir(tmp_path) == []


def test_there_is_no_such_model(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match="no model at"):
        export_draft(tmp_path / "missing", EXIT, tmp_path / "draft")
