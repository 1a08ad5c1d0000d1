"""A user's model changes after an engine or a hook was made for it: the next text is what its own generate writes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import forerun
from forerun.errors import UnsupportedModel
from forerun.testing import tiny_model

from .changing import PROMPT, SIZES, WRITERS, Change, by_engine, by_hook, check_followed, own

# PEFT and transformers call each other's older names
pytestmark = pytest.mark.filterwarnings("ignore:.*checkpointing.*:FutureWarning")


def steered(module: nn.Module, args: Any, out: Tensor) -> Tensor:
    return out + 0.8


def with_hook(model: Any) -> None:
    model.model.layers[1].mlp.register_forward_hook(steered)


def with_pre_hook(model: Any) -> None:
    model.model.layers[1].self_attn.q_proj.register_forward_pre_hook(lambda module, args: (args[0] * 1.5,))


def other_submodule(model: Any) -> None:
    model.model.layers[0].mlp = tiny_model("llama", seed=9, **SIZES).model.layers[0].mlp


def other_activation(model: Any) -> None:
    model.model.layers[0].mlp.act_fn = nn.ReLU()


def other_forward(model: Any) -> None:
    model.model.layers[1].mlp.forward = lambda hidden: hidden * 0.3


def other_parameter(model: Any) -> None:
    model.model.norm.weight = nn.Parameter(torch.linspace(-1, 2, 16))


def tied(model: Any) -> None:
    model.lm_head.weight = model.model.embed_tokens.weight


def other_attribute(model: Any) -> None:
    model.model.layers[0].self_attn.scaling *= 3


def other_epsilon(model: Any) -> None:
    model.model.norm.variance_epsilon = 40.0
    model.model.layers[0].input_layernorm.variance_epsilon = 10.0


def rotary_written(model: Any) -> None:
    model.model.rotary_emb.inv_freq.mul_(0.05)


def rotary_written_through_data(model: Any) -> None:
    model.model.rotary_emb.inv_freq.data[0] = 0.2


def rotary_replaced(model: Any) -> None:
    model.model.rotary_emb.inv_freq = model.model.rotary_emb.inv_freq * 0.05


def rotary_scaled(model: Any) -> None:
    model.model.rotary_emb.attention_scaling = 1.7


def parametrized(model: Any) -> None:
    class Doubled(nn.Module):
        def forward(self, weight: Tensor) -> Tensor:
            return weight * 2

    nn.utils.parametrize.register_parametrization(model.model.layers[0].self_attn.q_proj, "weight", Doubled())


@torch.no_grad()
def trained(model: Any) -> None:
    for parameter in model.parameters():
        parameter.mul_(1.3).add_(0.01)


def stepped(model: Any) -> None:
    """Of the attention and the MLP alone, so that only keys and values computed anew tell."""
    optimizer = torch.optim.SGD([p for name, p in model.named_parameters() if "layers" in name], lr=3.0)
    model(input_ids=PROMPT, labels=PROMPT).loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def written_through_data(model: Any) -> None:
    for name, parameter in model.named_parameters():
        if "v_proj" in name or "k_proj" in name:
            parameter.data.mul_(-1.5)


def data_exchanged(model: Any) -> None:
    for parameter in model.model.layers[0].parameters():
        parameter.data = parameter.data.roll(1, 0)


def loaded(model: Any) -> None:
    model.load_state_dict(tiny_model("llama", seed=5, **SIZES).state_dict())


CHANGES: list[Change] = [
    with_hook,
    with_pre_hook,
    other_submodule,
    other_activation,
    other_forward,
    other_parameter,
    tied,
    other_attribute,
    other_epsilon,
    rotary_written,
    rotary_written_through_data,
    rotary_replaced,
    rotary_scaled,
    parametrized,
    trained,
    stepped,
    written_through_data,
    data_exchanged,
    loaded,
]


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_changed_model_is_followed(change: Change, writer: str) -> None:
    check_followed(tiny_model("llama", **SIZES), change, writer)


@pytest.mark.parametrize("writer", WRITERS)
def test_a_model_that_trains_without_dropout_writes_its_text_and_stays_in_training(writer: str) -> None:
    model = tiny_model("llama", **SIZES).train()
    model.activation_checkpointing_enable()
    model.enable_input_require_grads()
    write = WRITERS[writer](model)
    assert write(model) == own(model)
    assert model.training
    model.eval()
    assert write(model) == own(model)


@pytest.mark.parametrize("writer", WRITERS)
def test_a_model_that_drops_out_while_it_trains_is_refused_until_it_evaluates(writer: str) -> None:
    model = tiny_model("gpt2", n_embd=16, n_layer=2, n_inner=24)
    write = WRITERS[writer](model)
    model.train()
    with pytest.raises(
        UnsupportedModel, match=r"is in training mode, where Dropout with p 0\.1 makes its text random; call"
    ):
        write(model)
    model.eval()
    assert write(model) == own(model)


def test_a_hook_on_a_layer_is_followed_and_its_layers_are_skipped_no_more() -> None:
    model = tiny_model("llama", **SIZES)
    engine = forerun.load(model, drafter="lookup")
    carved = engine.using("self", drafter_options={"exit_layer": 1})
    before = own(model)
    assert list(carved.generate(PROMPT[0], max_new_tokens=10).ids) == before
    handle = model.model.layers[0].register_forward_hook(steered)
    assert list(engine.generate(PROMPT[0], max_new_tokens=10).ids) == own(model) != before
    with pytest.raises(UnsupportedModel, match="so none is skipped; draft with lookup or a draft model"):
        carved.generate(PROMPT[0], max_new_tokens=10)
    handle.remove()
    assert list(carved.generate(PROMPT[0], max_new_tokens=10).ids) == before


def test_a_change_that_cannot_be_run_is_refused_each_time_until_it_is_taken_back() -> None:
    model = tiny_model("llama", **SIZES)
    for writer in WRITERS.values():
        write = writer(model)
        handle = model.model.layers[0].register_forward_hook(lambda module, args, out: out - out.mean(1, keepdim=True))
        for _ in range(2):
            with pytest.raises(UnsupportedModel, match="the packed forward is off by"):
                write(model)
        handle.remove()
        assert write(model) == own(model)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda model: model.to(torch.float64), r"type: torch.float64, before: torch.float32\); load it again"),
        (lambda model: model.resize_token_embeddings(105), r"tokens in its vocabulary: 105, before: 97\); load it"),
    ],
)
def test_a_model_of_another_type_or_size_is_followed_by_a_hook_and_refused_by_an_engine(
    change: Change, message: str
) -> None:
    model = tiny_model("llama", **SIZES)
    hooked, opened = by_hook(model), by_engine(model)
    assert hooked(model) == opened(model) == own(model)
    change(model)
    assert hooked(model) == own(model)
    with pytest.raises(UnsupportedModel, match=message):
        opened(model)


def test_a_draft_model_that_is_trained_or_rebuilt_goes_on_drafting() -> None:
    model, draft = tiny_model("llama", **SIZES), tiny_model("llama", seed=1, **SIZES)
    options = {"drafter": "draft_model", "drafter_options": {"model": draft}, "policy_options": {"k": 4}}
    engine = forerun.load(model, **options)
    expected = own(model)
    first = engine.generate(PROMPT[0], max_new_tokens=10)
    draft.load_state_dict(model.state_dict())
    with_hook(draft)
    other = engine.generate(PROMPT[0], max_new_tokens=10)
    draft.model.layers[1].mlp._forward_hooks.clear()
    same = engine.generate(PROMPT[0], max_new_tokens=10)
    assert list(first.ids) == list(other.ids) == list(same.ids) == expected
    assert same.stats.accepted > max(first.stats.accepted, other.stats.accepted)


def test_a_conversations_next_turn_still_reuses_what_was_kept() -> None:
    model = tiny_model("llama", **SIZES)
    engine = forerun.load(model)
    taken: list[int] = []
    real = engine.runner.execute

    def counted(requests: Any) -> Any:
        taken.extend(len(request.tokens) for request in requests)
        return real(requests)

    engine.runner.execute = counted  # type: ignore[method-assign]
    engine.generate(PROMPT[0], max_new_tokens=1)
    engine.generate(PROMPT[0], max_new_tokens=1)
    assert taken == [12, 1]
    written_through_data(model)
    engine.generate(PROMPT[0], max_new_tokens=1)
    assert taken == [12, 1, 12]
