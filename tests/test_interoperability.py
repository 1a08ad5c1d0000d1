"""What forerun writes works in transformers, and what others write with the same recipe works in forerun.

Models are in float32, so all texts must equal plain greedy decoding token for token.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from forerun import Engine, load
from forerun.export.draft import export_draft
from forerun.models.loading.load import open_module
from forerun.testing import END, save_tiny, tiny_model
from forerun.train.data.examples import Example
from forerun.train.layerskip.presets import Recipe
from forerun.train.layerskip.run import Settings, train

EXIT, NEW = 2, 24
TEXTS = ("to be or not to be", "abcabcabc", "z")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model as LayerSkip training saves it."""
    pytest.importorskip("peft")
    folder = tmp_path_factory.mktemp("trained")
    module = open_module(save_tiny(folder / "before"))
    examples = [Example((*(97 + (number + place) % 9 for place in range(16)), END), 4) for number in range(16)]
    recipe = Recipe(0.1, 1.0, "rotational", 2, "constant", 2e-3)
    settings = Settings(steps=6, batch_size=8, bf16=False, held_out=0.25, save_every=0)
    train(module, examples, folder / "after", recipe, settings)
    return folder / "after"


@pytest.fixture(scope="module")
def draft(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_draft(trained, EXIT, tmp_path_factory.mktemp("draft") / "draft").directory


def opened(path: Path) -> tuple[Any, Any]:
    return AutoModelForCausalLM.from_pretrained(path), AutoTokenizer.from_pretrained(path)


def written(model: Any, ids: Sequence[int], **options: Any) -> tuple[int, ...]:
    """What transformers' generate adds."""
    prompt = torch.tensor([list(ids)])
    whole = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=NEW,
        do_sample=False,
        pad_token_id=0,
        **options,
    )
    return tuple(whole[0, len(ids) :].tolist())


def layer_calls(model: Any, ids: Sequence[int], **options: Any) -> Counter[int]:
    """How often generate runs each layer."""
    calls: Counter[int] = Counter()
    hooks = [
        layer.register_forward_hook(lambda *given, index=index: calls.update([index]))
        for index, layer in enumerate(model.model.layers)
    ]
    written(model, ids, **options)
    for hook in hooks:
        hook.remove()
    return calls


def test_a_model_from_our_training_leaves_early_in_transformers(trained: Path) -> None:
    model, tokenizer = opened(trained)
    for text in TEXTS:
        ids = tokenizer(text).input_ids
        assert written(model, ids, assistant_early_exit=EXIT) == written(model, ids)


def test_transformers_drafts_with_the_first_layers_alone(trained: Path) -> None:
    """Else the equality above would say nothing about exits."""
    model, tokenizer = opened(trained)
    ids = tokenizer(TEXTS[0]).input_ids
    plain, early = layer_calls(model, ids), layer_calls(model, ids, assistant_early_exit=EXIT)

    assert len(set(plain.values())) == 1
    assert early[0] == early[EXIT - 1] > early[EXIT] == early[3]
    assert model.config.num_hidden_layers == 4


def test_a_model_from_our_training_leaves_early_in_forerun(trained: Path) -> None:
    model, tokenizer = opened(trained)
    engine = load(trained, drafter="self", drafter_options={"exit_layer": EXIT}, policy_options={"k": 4})
    for text in TEXTS:
        result = engine.generate(text, max_new_tokens=NEW)
        assert result.ids == written(model, tokenizer(text).input_ids)
        assert result.stats.drafted > 0


def test_an_exported_draft_assists_in_transformers(trained: Path, draft: Path) -> None:
    model, tokenizer = opened(trained)
    assistant = AutoModelForCausalLM.from_pretrained(draft)
    for text in TEXTS:
        ids = tokenizer(text).input_ids
        assert written(model, ids, assistant_model=assistant) == written(model, ids)


def test_an_exported_draft_runs_while_it_assists(trained: Path, draft: Path) -> None:
    model, tokenizer = opened(trained)
    assistant = AutoModelForCausalLM.from_pretrained(draft)
    ids = tokenizer(TEXTS[0]).input_ids
    calls: list[int] = []
    assistant.model.layers[0].register_forward_hook(lambda *given: calls.append(1))
    written(model, ids, assistant_model=assistant)

    assert len(calls) > 1


def test_an_exported_draft_drafts_for_the_whole_model_in_forerun_what_its_exit_drafts(
    trained: Path, draft: Path
) -> None:
    plain = load(trained)
    by_model = plain.using("draft_model", drafter_options={"model": draft}, policy_options={"k": 3})
    by_exit = plain.using("self", drafter_options={"exit_layer": EXIT}, policy_options={"k": 3})
    for text in TEXTS:
        results = [engine.generate(text, max_new_tokens=NEW) for engine in (plain, by_model, by_exit)]
        assert results[0].ids == results[1].ids == results[2].ids
        drafted, exited = results[1].stats, results[2].stats
        assert (drafted.rounds, drafted.drafted, drafted.accepted) == (exited.rounds, exited.drafted, exited.accepted)


def elsewhere(folder: Path, tied: bool, shards: int) -> Path:
    """A Llama checkpoint in the words of transformers 4.45, in which the facebook/layerskip-* ones were published."""
    shape = {"num_hidden_layers": 6, "tie_word_embeddings": tied, "rms_norm_eps": 1e-5}
    rope = {
        "factor": 32.0,
        "high_freq_factor": 4.0,
        "low_freq_factor": 1.0,
        "original_max_position_embeddings": 64,
        "rope_type": "llama3",
    }
    state = {
        name: value.to(torch.bfloat16).contiguous()
        for name, value in tiny_model("llama", **shape).state_dict().items()
        if not (tied and name == "lm_head.weight")
    }
    folder.mkdir()
    config = {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": 1,
        "eos_token_id": 96,
        "head_dim": 8,
        "hidden_act": "silu",
        "hidden_size": 32,
        "initializer_range": 0.02,
        "intermediate_size": 48,
        "max_position_embeddings": 256,
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "pretraining_tp": 1,
        "rope_scaling": rope,
        "rope_theta": 500000.0,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.45.0",
        "use_cache": True,
        "vocab_size": 97,
        **shape,
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text(json.dumps({"bos_token_id": 1, "eos_token_id": 96}))
    if shards == 1:
        save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
        return folder
    places = {name: f"model-{index % shards + 1:05}-of-{shards:05}.safetensors" for index, name in enumerate(state)}
    for file in set(places.values()):
        part = {name: state[name] for name, place in places.items() if place == file}
        save_file(part, folder / file, metadata={"format": "pt"})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return folder


# the 1B model's layout, and that of the larger ones
@pytest.fixture(scope="module", params=[(True, 1), (False, 3)], ids=["tied", "sharded"])
def foreign(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    tied, shards = request.param
    return elsewhere(tmp_path_factory.mktemp("foreign") / "layerskip-llama", tied, shards)


def exits_of(engine: Engine, exit_layer: int) -> Engine:
    return engine.using("self", drafter_options={"exit_layer": exit_layer}, policy_options={"k": 3})


@pytest.mark.parametrize("runner", ["lean", "hf"])
def test_a_checkpoint_trained_elsewhere_runs_with_every_exit(foreign: Path, runner: str) -> None:
    model = AutoModelForCausalLM.from_pretrained(foreign, dtype=torch.float32)
    assert model.config.rope_parameters["rope_type"] == "llama3"
    engine = load(foreign, dtype="float32", runner=runner)
    for ids in ([5, 6, 7], [8, 9] * 50):
        expected = written(model, ids)
        assert len(expected) > 4
        assert engine.generate(ids, max_new_tokens=NEW).ids == expected
        for exit_layer in range(1, 6):
            result = exits_of(engine, exit_layer).generate(ids, max_new_tokens=NEW)
            assert result.ids == expected
            assert result.stats.drafted > 0


def test_an_exit_that_a_checkpoint_does_not_have_is_refused(foreign: Path) -> None:
    with pytest.raises(ValueError, match=r"exit_layer must be in 1..5 for a model of 6 layers, got 6"):
        exits_of(load(foreign), 6)


def test_a_checkpoint_trained_elsewhere_is_exported_in_its_own_number_format(foreign: Path, tmp_path: Path) -> None:
    directory = export_draft(foreign, 3, tmp_path / "draft").directory
    cut = AutoModelForCausalLM.from_pretrained(directory)
    told = json.loads((directory / "config.json").read_text())

    assert cut.dtype == torch.bfloat16
    assert told["rope_parameters"]["factor"] == 32.0
    assert written(AutoModelForCausalLM.from_pretrained(foreign, dtype=torch.float32), [5, 6, 7]) == written(
        AutoModelForCausalLM.from_pretrained(foreign, dtype=torch.float32), [5, 6, 7], assistant_model=cut.float()
    )
