"""Model objects with something around them: what is run is what they run, or they are refused by kind."""

from __future__ import annotations

from typing import Any

import peft
import pytest
import torch

from forerun.errors import UnsupportedModel
from forerun.models.loading.load import open_model
from forerun.models.loading.wrappers import unwrapped
from forerun.models.packed.sequence import Sequence
from forerun.testing import tiny_model

from ..running import finish, off, own_logits, text

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning"),
]
LORA = {"r": 2, "target_modules": ["q_proj", "up_proj"], "init_lora_weights": False}


def logits(model: Any) -> torch.Tensor:
    return finish(Sequence(open_model(model).runner).forward(text(9))).logits


def adapted(**options: Any) -> Any:
    return peft.get_peft_model(tiny_model("llama"), peft.LoraConfig(**{**LORA, **options})).eval()


def test_a_model_with_nothing_around_it_is_itself() -> None:
    model = tiny_model("llama")
    assert unwrapped(model) is model
    assert unwrapped(3) == 3


def test_a_compiled_model_runs_as_the_model_that_was_compiled() -> None:
    model = tiny_model("llama")
    compiled = torch.compile(model)
    assert unwrapped(compiled) is model
    assert off(logits(compiled), own_logits(model, text(9))) < 1e-4


def test_a_parallel_model_runs_as_the_model_within() -> None:
    model = tiny_model("llama")
    assert unwrapped(torch.nn.DataParallel(model)) is model
    assert unwrapped(torch.compile(torch.nn.DataParallel(model))) is model


@pytest.mark.parametrize("kind", ["lora", "dora", "ia3"])
def test_an_adapter_in_the_layers_is_part_of_the_model(kind: str) -> None:
    if kind == "ia3":
        config = peft.IA3Config(
            target_modules=["k_proj", "up_proj"], feedforward_modules=["up_proj"], init_ia3_weights=False
        )
        model = peft.get_peft_model(tiny_model("llama"), config).eval()
        for name, value in model.named_parameters():
            if "ia3_l" in name:
                torch.nn.init.normal_(value)
    else:
        model = adapted(use_dora=kind == "dora")
    expected = own_logits(model, text(9))
    assert off(expected, own_logits(tiny_model("llama"), text(9))) > 0.1
    assert off(logits(model), expected) < 1e-4


def test_a_model_keeps_its_adapter_and_what_is_around_it() -> None:
    model = adapted()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    open_model(torch.compile(model))
    assert isinstance(model, peft.PeftModel)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        (peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3), "PROMPT_TUNING"),
        (peft.PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3), "PREFIX_TUNING"),
        (peft.PromptEncoderConfig(task_type="CAUSAL_LM", num_virtual_tokens=3, encoder_hidden_size=8), "P_TUNING"),
        (peft.AdaptionPromptConfig(task_type="CAUSAL_LM", adapter_len=2, adapter_layers=2), "ADAPTION_PROMPT"),
    ],
)
def test_an_adapter_outside_of_the_layers_is_refused_by_its_kind(config: Any, kind: str) -> None:
    model = peft.get_peft_model(tiny_model("llama", num_key_value_heads=4), config)
    with pytest.raises(UnsupportedModel, match=f"the adapter 'default' is of the kind {kind}, which acts outside"):
        open_model(model)


def test_an_adapter_that_waits_for_certain_tokens_is_refused() -> None:
    model = adapted(task_type="CAUSAL_LM", alora_invocation_tokens=[5, 6])
    with pytest.raises(UnsupportedModel, match="acts only after certain tokens"):
        open_model(model)


def test_what_is_around_no_transformers_model_is_refused_by_what_is_within() -> None:
    with pytest.raises(UnsupportedModel, match="forerun runs transformers models, got a Linear"):
        open_model(torch.nn.DataParallel(torch.nn.Linear(2, 2)))
