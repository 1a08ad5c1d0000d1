"""What is read off a frozen base: embeddings, final norm and head, of every family that has no more than those."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from forerun.errors import UnsupportedModel
from forerun.testing import FAMILIES, tiny_model
from forerun.train.distil.frozen import frozen_of


@pytest.mark.parametrize("family", FAMILIES)
def test_the_bases_choices_follow_from_its_last_states(family: str) -> None:
    model = tiny_model(family)
    frozen = frozen_of(model)
    ids = torch.tensor([[5, 6, 7, 8, 9, 10]])
    seen: list[torch.Tensor] = []
    handle = frozen.last_layers[-1].register_forward_hook(
        lambda module, args, out: seen.append(out if isinstance(out, torch.Tensor) else out[0])
    )
    with torch.no_grad():
        logits = model(ids, use_cache=False).logits[0]
    handle.remove()
    assert torch.equal(frozen.best_tokens(frozen.head_rows(seen[0][0])), logits.argmax(-1))
    assert torch.equal(frozen.embeddings, model.get_input_embeddings().weight)
    assert not frozen.head.requires_grad


def test_looking_leaves_the_model_as_it_was() -> None:
    model = tiny_model("llama")
    frozen_of(model)
    assert all(not module._forward_hooks for module in model.modules())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_many_rows_are_read_in_pieces_alike() -> None:
    frozen = frozen_of(tiny_model("llama"))
    rows = torch.randn(1100, 32, generator=torch.Generator().manual_seed(0))
    assert torch.equal(frozen.best_tokens(rows), (rows @ frozen.head.T).argmax(-1))


def test_a_head_that_is_more_than_a_matrix_is_refused() -> None:
    model = tiny_model("llama")
    model.set_output_embeddings(nn.Linear(32, 97, bias=True))
    with pytest.raises(UnsupportedModel, match="LlamaForCausalLM has no plain final norm and head"):
        frozen_of(model)


def test_a_final_norm_without_weights_is_refused_in_words() -> None:
    model = tiny_model("llama")
    model.model.norm = nn.LayerNorm(32, elementwise_affine=False)
    with pytest.raises(UnsupportedModel, match="no plain final norm and head"):
        frozen_of(model)


def test_a_model_that_does_more_after_its_last_layer_is_refused() -> None:
    model = tiny_model("llama")

    class Turned(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            turned: torch.Tensor = self.inner(x).flip(-1)
            return turned

    model.model.norm = Turned(model.model.norm)
    with pytest.raises(UnsupportedModel, match="does more than normalise between its last layer and its head"):
        frozen_of(model)
