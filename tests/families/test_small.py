"""Every decoder of transformers, made small."""

from __future__ import annotations

import pytest
import torch

from forerun.families.small import LAYERS, VOCABULARY, WINDOW, cut, small_config, small_model


@pytest.mark.parametrize("family", ["llama", "gpt2", "bloom", "xglm", "gpt_neo", "deepseek_v3", "gemma3", "falcon"])
def test_a_model_is_small_and_writes(family: str) -> None:
    model = small_model(family)
    assert sum(parameter.numel() for parameter in model.parameters()) < 1e6
    assert model.dtype == torch.float32
    assert not model.training
    logits = model(torch.tensor([[5, 6, 7]])).logits
    assert logits.shape == (1, 3, VOCABULARY)
    assert logits.isfinite().all()


def test_windows_bite_and_layers_keep_their_kinds() -> None:
    config = small_config("gemma3_text")
    assert config.sliding_window == WINDOW
    assert config.num_hidden_layers == len(config.layer_types) == LAYERS
    assert set(config.layer_types) == {"sliding_attention", "full_attention"}


@pytest.mark.parametrize(
    ("entries", "first"), [("aaaa", "aaaa"), ("aaaab", "aaab"), ("abcdef", "abce"), ("ab" * 4, "abab")]
)
def test_a_list_with_an_entry_for_each_layer_is_cut_to_the_first_and_a_missing_kind(entries: str, first: str) -> None:
    assert cut(list(entries)) == list(first)


def test_changes_go_into_the_text_part() -> None:
    assert small_config("llama", {"attention_bias": True}).attention_bias is True
    assert small_config("gemma3", {"sliding_window": 5}).text_config.sliding_window == 5


def test_special_tokens_lie_within_the_vocabulary() -> None:
    config = small_config("gemma3")
    assert 0 <= config.image_token_id < VOCABULARY
    assert (config.text_config.pad_token_id, config.text_config.bos_token_id) == (0, 1)


def test_a_seed_gives_the_same_model_and_leaves_other_random_numbers_alone() -> None:
    torch.manual_seed(3)
    one = small_model("llama")
    after = torch.rand(1)
    torch.manual_seed(3)
    assert torch.equal(torch.rand(1), after)
    assert torch.equal(small_model("llama").lm_head.weight, one.lm_head.weight)
    assert not torch.equal(small_model("llama", seed=1).lm_head.weight, one.lm_head.weight)
