from __future__ import annotations

from typing import Any

import pytest
import torch

from forerun.errors import UnsupportedModel
from forerun.export.whole_head import FAR, whole_head
from forerun.testing import tiny_model

SAID = range(0, 97, 2)


@pytest.fixture(scope="module")
def model() -> Any:
    """Its states have something in common, as those of trained models do."""
    made = tiny_model("llama", 0, tie_word_embeddings=False)
    made.get_input_embeddings().weight.data[:, 0] += 10.0
    return made.eval()


def logits(model: Any, head: torch.Tensor) -> torch.Tensor:
    ids = torch.randint(len(head), (5, 30), generator=torch.Generator().manual_seed(7))
    with torch.no_grad():
        states: torch.Tensor = model.model(input_ids=ids).last_hidden_state
    return states.flatten(0, 1) @ head.T


def test_tokens_that_are_not_said_are_far_below_the_others(model: Any) -> None:
    found = logits(model, whole_head(model, list(SAID), "tiny"))
    said = torch.zeros(found.shape[1], dtype=torch.bool)
    said[list(SAID)] = True
    assert found[:, ~said].max() < FAR / 4
    assert found[:, said].min() > FAR / 4
    assert bool(said[found.argmax(1)].all())


def test_the_rows_of_tokens_that_are_said_stay(model: Any) -> None:
    head = model.get_output_embeddings().weight
    whole = whole_head(model, list(SAID), "tiny")
    assert torch.equal(whole[list(SAID)], head[list(SAID)].float())
    assert whole.shape == head.shape
    unsaid = whole[1::2]
    assert torch.equal(unsaid, unsaid[:1].expand_as(unsaid))


def test_a_whole_vocabulary_stays_as_it_is(model: Any) -> None:
    head = model.get_output_embeddings().weight
    assert torch.equal(whole_head(model, range(len(head)), "tiny"), head.float())


def test_states_without_a_common_direction_are_refused() -> None:
    scattered = tiny_model("llama", 0, tie_word_embeddings=False).eval()
    scattered.model.norm.register_forward_hook(lambda module, given, out: out * torch.randn(out.shape[:2])[..., None])
    with pytest.raises(
        UnsupportedModel, match=r"no direction in common, so its head can't be written .*--vocabulary 0"
    ):
        whole_head(scattered, list(SAID), "tiny")
