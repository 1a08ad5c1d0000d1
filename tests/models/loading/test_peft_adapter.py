"""Directories with a PEFT adapter write what the model with its adapter writes, merged, on either decoder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from safetensors.torch import load_file, save_file

from forerun.errors import InvalidModelFile, ModelNotFound, UnsupportedModel
from forerun.models.lean.runner import LeanRunner
from forerun.models.loading import peft_adapter as module
from forerun.models.loading.load import open_model
from forerun.models.packed.runner import HFRunner
from forerun.models.packed.sequence import Sequence
from forerun.testing import END, save_tiny, tiny_model

from ..running import finish, off, own_logits, text

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning"),
]
KINDS: dict[str, Any] = {
    "lora": peft.LoraConfig(r=2, target_modules=["q_proj", "up_proj"], init_lora_weights=False),
    "dora": peft.LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False, use_dora=True),
    "head": peft.LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False, modules_to_save=["lm_head"]),
    "loha": peft.LoHaConfig(r=2, target_modules=["down_proj"], init_weights=False),
}


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return save_tiny(tmp_path / "base")


def tiny() -> Any:
    return tiny_model("llama", vocab_size=260, eos_token_id=END)


def adapter(path: Path, base: str, kind: str = "lora") -> tuple[Path, torch.Tensor]:
    """A saved adapter, and the logits of the model that it was saved from."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = peft.get_peft_model(tiny(), KINDS[kind]).eval()
    model.save_pretrained(path)
    named = path / "adapter_config.json"
    named.write_text(json.dumps({**json.loads(named.read_text()), "base_model_name_or_path": base}))
    return path, own_logits(model, text(9))


def logits(path: Path, **options: Any) -> torch.Tensor:
    return finish(Sequence(open_model(path, **options).runner).forward(text(9))).logits


@pytest.mark.parametrize("kind", KINDS)
def test_an_adapter_alone_is_merged_into_its_base(tmp_path: Path, base: Path, kind: str) -> None:
    path, expected = adapter(tmp_path / "adapter", str(base), kind)
    assert off(expected, own_logits(tiny(), text(9))) > 0.1
    for runner in ("lean", "hf"):
        assert off(logits(path, runner=runner), expected) < 1e-4


def test_the_tokenizer_and_the_end_are_the_bases(tmp_path: Path, base: Path) -> None:
    path, _ = adapter(tmp_path / "adapter", str(base))
    loaded = open_model(path)
    assert (loaded.name, loaded.eos, len(loaded.tokenizer)) == ("adapter", {END}, 260)
    assert isinstance(loaded.runner, LeanRunner)


def test_a_base_may_be_named_from_the_adapters_own_directory(tmp_path: Path, base: Path) -> None:
    path, expected = adapter(tmp_path / "adapter", "../base")
    assert off(logits(path), expected) < 1e-4


@pytest.mark.parametrize(("runner", "kind"), [("auto", LeanRunner), ("hf", HFRunner), ("lean", LeanRunner)])
def test_a_model_and_an_adapter_in_one_directory_belong_together(base: Path, runner: str, kind: type) -> None:
    path, expected = adapter(base, "some/other-model")
    assert isinstance(open_model(path, runner=runner).runner, kind)
    assert off(logits(path, runner=runner), expected) < 1e-4


def test_a_configuration_beside_an_adapter_is_no_model_without_weights(tmp_path: Path, base: Path) -> None:
    path, expected = adapter(tmp_path / "adapter", str(base))
    (path / "config.json").write_bytes((base / "config.json").read_bytes())
    assert off(logits(path), expected) < 1e-4


def test_an_adapter_on_an_adapter_is_merged_in_turn(tmp_path: Path, base: Path) -> None:
    first, _ = adapter(base, "")
    second, _ = adapter(tmp_path / "second", str(first), "loha")
    assert off(logits(second), logits(first)) > 0.1


@pytest.mark.parametrize(
    ("named", "said"), [("", "names no base model"), ("./nowhere", "holds an adapter of './nowhere'")]
)
def test_a_base_that_can_not_be_had_is_named(tmp_path: Path, named: str, said: str) -> None:
    path, _ = adapter(tmp_path / "adapter", named)
    with pytest.raises(ModelNotFound, match=said):
        open_model(path)


@pytest.mark.parametrize("content", ["{", "[]", "{}"])
def test_a_damaged_configuration_is_one_sentence(tmp_path: Path, base: Path, content: str) -> None:
    path, _ = adapter(tmp_path / "adapter", str(base))
    (path / "adapter_config.json").write_text(content)
    with pytest.raises(InvalidModelFile, match=r"adapter_config\.json names no base model that can be read") as caught:
        open_model(path)
    assert "\n" not in str(caught.value)


def test_pickled_adapters_are_refused(tmp_path: Path, base: Path) -> None:
    path, _ = adapter(tmp_path / "adapter", str(base))
    (path / "adapter_model.safetensors").rename(path / "adapter_model.bin")
    with pytest.raises(UnsupportedModel, match=r"pickled weights .* can run code when they are read"):
        open_model(path)


@pytest.mark.parametrize("change", ["more", "fewer", "wider"])
def test_an_adapter_that_does_not_fit_is_refused(tmp_path: Path, base: Path, change: str) -> None:
    path, _ = adapter(tmp_path / "adapter", str(base))
    file = path / "adapter_model.safetensors"
    held = load_file(file)
    name = sorted(held)[0]
    value = held.pop(name)
    if change == "more":
        held |= {name: value, name.replace("layers.0", "layers.9"): value.clone()}
    if change == "wider":
        held[name] = torch.ones(7, 5)
    save_file(held, file)
    with pytest.raises(
        InvalidModelFile, match=r"doesn't fit the model, such as |can't be merged into its model"
    ) as caught:
        open_model(path)
    assert "\n" not in str(caught.value)


def test_a_prompt_that_was_learnt_is_refused_by_its_kind(tmp_path: Path, base: Path) -> None:
    config = peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3)
    peft.get_peft_model(tiny(), config).save_pretrained(base)
    with pytest.raises(UnsupportedModel, match=r"the adapter in \S+ is of the kind PROMPT_TUNING"):
        open_model(base)


def test_a_missing_package_is_named(tmp_path: Path, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, _ = adapter(tmp_path / "adapter", str(base))
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(UnsupportedModel, match="needs the package peft: pip install peft"):
        open_model(path)
