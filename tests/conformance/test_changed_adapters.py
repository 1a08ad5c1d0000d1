"""PEFT changes a model after an engine or a hook was made for it: the next text is what its own generate writes."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from peft import LoraConfig, PrefixTuningConfig, PromptEncoderConfig, PromptTuningConfig, get_peft_model

from forerun.errors import UnsupportedModel
from forerun.testing import tiny_model

from .changing import SIZES, WRITERS, Change, by_hook, check_followed, own

# PEFT and transformers call each other's older names
pytestmark = pytest.mark.filterwarnings("ignore:.*checkpointing.*:FutureWarning")


def lora(**changes: Any) -> LoraConfig:
    return LoraConfig(r=4, target_modules=["q_proj", "down_proj"], init_lora_weights=False, lora_alpha=32, **changes)


def adapted(seed: int = 0) -> Any:
    """A tiny Llama with two adapters that say other things, "default" active."""
    torch.manual_seed(seed)
    model = get_peft_model(tiny_model("llama", **SIZES), lora())
    model.add_adapter("other", lora())
    return model.eval()


def merged(model: Any) -> None:
    model.merge_adapter()


def other_adapter(model: Any) -> None:
    model.set_adapter("other")


def both_adapters(model: Any) -> None:
    model.base_model.set_adapter(["default", "other"])


def new_adapter(model: Any) -> None:
    model.add_adapter("third", lora())
    model.set_adapter("third")


def weighed(model: Any) -> None:
    model.base_model.add_weighted_adapter(["default", "other"], [0.5, 0.7], "both", combination_type="linear")
    model.set_adapter("both")


def rescaled(model: Any) -> None:
    for module in model.modules():
        if hasattr(module, "scaling") and isinstance(module.scaling, dict):
            module.scaling["default"] = 0.1


def off(model: Any) -> None:
    model.base_model.disable_adapter_layers()


def deleted(model: Any) -> None:
    model.set_adapter("other")
    model.delete_adapter("default")


def adapter_trained(model: Any) -> None:
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.mul_(-1)


ADAPTER_CHANGES: list[Change] = [
    other_adapter,
    both_adapters,
    new_adapter,
    weighed,
    rescaled,
    off,
    deleted,
    adapter_trained,
]


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("change", ADAPTER_CHANGES, ids=lambda change: change.__name__)
def test_changed_adapters_are_followed(change: Change, writer: str) -> None:
    check_followed(adapted(), change, writer)


@pytest.mark.parametrize("writer", WRITERS)
def test_adapters_that_are_switched_off_for_a_while_come_back(writer: str) -> None:
    model = adapted()
    write = WRITERS[writer](model)
    texts = []
    for context in (nullcontext, model.disable_adapter, nullcontext):
        with context():
            assert write(model) == own(model)
            texts.append(own(model))
    assert texts[0] == texts[2] != texts[1]


@pytest.mark.parametrize("writer", WRITERS)
def test_a_merged_and_an_unloaded_adapter_are_followed(writer: str) -> None:
    model = adapted()
    before, write = own(model), WRITERS[writer](model)
    assert write(model) == before
    merged(model)
    assert write(model) == own(model) == before
    model.unmerge_adapter()
    assert write(model) == before
    bare = model.unload()
    assert write(bare) == own(bare) != before


TUNED = {
    "prompt": PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4),
    "prefix": PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4),
    "p": PromptEncoderConfig(task_type="CAUSAL_LM", num_virtual_tokens=4, encoder_hidden_size=8),
}


@pytest.mark.parametrize("kind", TUNED)
def test_a_tuned_prompt_is_refused_by_the_hook_and_its_bare_model_is_not(kind: str) -> None:
    model = get_peft_model(tiny_model("llama", **SIZES), TUNED[kind])
    write = by_hook(model)
    with pytest.raises(UnsupportedModel, match="a PeftModelForCausalLM prepares the inputs of this LlamaForCausalLM"):
        write(model)
    bare = model.get_base_model()
    assert write(bare) == own(bare)
    with model.disable_adapter():
        assert write(model) == own(model)


def test_an_adapter_that_drops_out_while_it_trains_is_refused() -> None:
    model = get_peft_model(tiny_model("llama", **SIZES), lora(lora_dropout=0.2)).train()
    with pytest.raises(UnsupportedModel, match=r"Dropout with p 0\.2"):
        by_hook(model)(model)
