"""custom_generate against generate without it, on the same model object."""

import gc
import runpy
import sys
from importlib import import_module
from pathlib import Path
from typing import Any
from weakref import ref

import pytest
import torch
from torch import Tensor

import forerun
from forerun.core.chance import Seeded
from forerun.core.law import Categorical
from forerun.errors import InvalidLogits, UnsupportedOption
from forerun.testing import save_tiny, tiny_model

EOS = [3, 18, 58]
PAD = 0
METHODS: list[dict[str, Any]] = [
    {"drafter": "none"},
    {"drafter": "lookup", "policy": "heuristic"},
    {"drafter": "self", "drafter_options": {"exit_layer": 2}, "policy_options": {"k": 3}},
    {"drafter": "self", "drafter_options": {"skip_mlp": (1, 2)}, "policy": "threshold"},
]
PROMPT = torch.tensor([[5, 6, 7, 5, 6, 8, 5, 6]])
BATCH = torch.tensor([[5, 6, 7, 5, 6, 8, 5, 6], [0, 0, 0, 9, 4, 9, 4, 9], [0, 0, 0, 0, 0, 0, 0, 33]])
MASK = torch.tensor([[1] * 8, [0] * 3 + [1] * 5, [0] * 7 + [1]])
PADDED = {"input_ids": BATCH, "attention_mask": MASK, "pad_token_id": PAD}


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny_model("llama")


@pytest.fixture(scope="module", params=METHODS, ids=["none", "lookup", "exit", "skip"])
def hook(request: Any) -> Any:
    return forerun.custom_generate(**request.param)


def test_greedy_text_equals_generates_own(model: Any, hook: Any) -> None:
    options = {"input_ids": PROMPT, "max_new_tokens": 30, "do_sample": False}
    assert torch.equal(model.generate(**options, custom_generate=hook), model.generate(**options))


@pytest.mark.parametrize("new", [1, 2, 25])
def test_a_padded_batch_equals_generates_own(model: Any, hook: Any, new: int) -> None:
    options = {**PADDED, "max_new_tokens": new, "do_sample": False, "eos_token_id": EOS}
    expected = model.generate(**options)
    assert torch.equal(model.generate(**options, custom_generate=hook), expected)


def test_the_padded_batch_of_these_tests_ends_apart(model: Any) -> None:
    written = model.generate(**PADDED, max_new_tokens=25, do_sample=False, eos_token_id=EOS)[:, 8:]
    ends = [min((row.tolist().index(eos) for eos in EOS if eos in row.tolist()), default=None) for row in written]
    assert len(set(ends)) == 3


@pytest.mark.parametrize("family", ["gemma2", "gpt2", "opt", "qwen3_moe"])
def test_other_families_equal_generates_own(family: str) -> None:
    other = tiny_model(family)
    options = {**PADDED, "max_new_tokens": 20, "do_sample": False, "eos_token_id": EOS}
    hook = forerun.custom_generate("self", drafter_options={"exit_layer": 2})
    assert torch.equal(other.generate(**options, custom_generate=hook), other.generate(**options))


def test_a_draft_model_drafts(model: Any) -> None:
    draft = tiny_model("llama", seed=1, num_hidden_layers=2)
    hook = forerun.custom_generate("draft_model", drafter_options={"model": draft})
    options = {**PADDED, "max_new_tokens": 12, "do_sample": False, "eos_token_id": EOS}
    assert torch.equal(model.generate(**options, custom_generate=hook), model.generate(**options))


def test_scores_and_logits_equal_generates_own_up_to_each_end(model: Any, hook: Any) -> None:
    options: dict[str, Any] = {**PADDED, "max_new_tokens": 12, "do_sample": False, "eos_token_id": EOS}
    options |= {
        "return_dict_in_generate": True,
        "output_scores": True,
        "output_logits": True,
        "repetition_penalty": 1.3,
    }
    expected, actual = model.generate(**options), model.generate(**options, custom_generate=hook)
    assert type(actual) is type(expected)
    assert torch.equal(actual.sequences, expected.sequences)
    for kept in ("scores", "logits"):
        ours, theirs = getattr(actual, kept), getattr(expected, kept)
        assert len(ours) == len(theirs) == actual.sequences.shape[1] - BATCH.shape[1]
        for step, (mine, yours) in enumerate(zip(ours, theirs, strict=True)):
            running = ~torch.isin(actual.sequences[:, 8 : 8 + step], torch.tensor(EOS)).any(1)
            assert running.any()
            torch.testing.assert_close(mine[running], yours[running], atol=1e-4, rtol=1e-4)
            ended = mine[~running]
            assert ended.softmax(-1)[:, PAD].eq(1).all()
    assert not actual.scores[0].is_inference()


def test_only_the_asked_for_is_in_the_output(model: Any, hook: Any) -> None:
    out = model.generate(PROMPT, max_new_tokens=3, do_sample=False, return_dict_in_generate=True, custom_generate=hook)
    assert set(out.keys()) == {"sequences"}
    out = model.generate(PROMPT, max_new_tokens=3, do_sample=False, output_scores=True, custom_generate=hook)
    assert isinstance(out, Tensor)


def sampled_by_hand(model: Any, ids: Tensor, seed: int, new: int, **options: Any) -> Tensor:
    """Plain sampling with transformers' own processors and forerun's numbers."""
    config = model.generation_config.__class__(do_sample=True, **options)
    model._prepare_special_tokens(config, device="cpu")
    processors = model._get_logits_processor(config, input_ids_seq_length=ids.shape[1])
    for _ in range(new):
        with torch.no_grad():
            logits = model(input_ids=ids).logits[:, -1]
        law = Categorical(processors(ids, logits)[0].softmax(-1))
        ids = torch.cat([ids, torch.tensor([[Seeded(seed).draw(law, ids.shape[1])]])], 1)
    return ids


@pytest.mark.parametrize(
    "options",
    [
        {"top_k": 0},
        {"temperature": 0.6, "top_k": 12, "top_p": 0.8},
        {"temperature": 1.4, "top_k": 0, "min_p": 0.05, "repetition_penalty": 1.5, "no_repeat_ngram_size": 2},
        {"top_k": 0, "typical_p": 0.7},
    ],
)
def test_sampled_text_is_drawn_from_the_processed_scores_and_warped_once(model: Any, options: Any) -> None:
    """Chosen drafts are matched with the target's own draws, so the text is known to the token."""
    hook = forerun.custom_generate("lookup")
    for start in range(3):
        torch.manual_seed(start)
        seed = int(torch.randint(2**63 - 1, ()))
        torch.manual_seed(start)
        actual = model.generate(PROMPT, max_new_tokens=15, do_sample=True, custom_generate=hook, **options)
        assert torch.equal(actual, sampled_by_hand(model, PROMPT, seed, 15, **options))


def test_sampled_text_with_drawn_drafts_follows_the_same_law() -> None:
    """Chi-square of the first two tokens over 1,000 texts, level 1e-4; drafts are drawn from half of the layers."""
    small = tiny_model("llama", vocab_size=4, bos_token_id=None, seed=2)
    hook = forerun.custom_generate("self", drafter_options={"exit_layer": 2}, policy_options={"k": 2})
    torch.manual_seed(0)
    prompts = torch.tensor([[1, 2, 3]]).repeat(250, 1)
    options = {"do_sample": True, "max_new_tokens": 3, "top_k": 0, "temperature": 4.0, "custom_generate": hook}
    written = torch.cat([small.generate(prompts, **options)[:, 3:5] for _ in range(4)])
    with torch.no_grad():
        first = (small(torch.tensor([[1, 2, 3]])).logits[0, -1] / 4).softmax(-1)
        second = (small(torch.tensor([[1, 2, 3, token] for token in range(4)])).logits[:, -1] / 4).softmax(-1)
    expected = (first[:, None] * second).flatten().double() * len(written)
    counts = torch.bincount(written[:, 0] * 4 + written[:, 1], minlength=16).double()
    assert float(expected.min()) > 5
    statistic = ((counts - expected) ** 2 / expected).sum()
    assert float(torch.special.gammaincc(torch.tensor(7.5).double(), statistic / 2)) > 1e-4


def test_sampling_is_repeated_by_torchs_global_seed_and_rows_differ(model: Any, hook: Any) -> None:
    options = {"do_sample": True, "max_new_tokens": 10, "num_return_sequences": 3, "custom_generate": hook}
    torch.manual_seed(7)
    one = model.generate(PROMPT, **options)
    other = model.generate(PROMPT, **options)
    torch.manual_seed(7)
    assert torch.equal(model.generate(PROMPT, **options), one)
    assert not torch.equal(other, one)
    assert len({tuple(row.tolist()) for row in one}) == 3


def test_greedy_decoding_leaves_torchs_global_generator_alone(model: Any, hook: Any) -> None:
    before = torch.get_rng_state()
    model.generate(PROMPT, do_sample=False, max_new_tokens=5, custom_generate=hook)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_models_generation_config_counts(model: Any, hook: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(model.generation_config, "eos_token_id", EOS)
    monkeypatch.setattr(model.generation_config, "repetition_penalty", 1.4)
    options = {"do_sample": False, "max_length": 30, "pad_token_id": PAD}
    assert torch.equal(model.generate(PROMPT, **options, custom_generate=hook), model.generate(PROMPT, **options))


def test_the_users_model_is_left_as_it_was(hook: Any) -> None:
    user = tiny_model("gemma2").train()
    parameters = {name: (id(value), value.clone()) for name, value in user.named_parameters()}
    attention, settings = user.config._attn_implementation, user.config.to_dict()
    user.generate(PROMPT, do_sample=False, max_new_tokens=5, custom_generate=hook)
    for name, value in user.named_parameters():
        assert id(value) == parameters[name][0]
        assert torch.equal(value, parameters[name][1])
    assert user.config._attn_implementation == attention
    assert user.config.to_dict() == settings
    assert user.training
    assert not any(module._forward_pre_hooks or "forward" in vars(module) for module in user.modules())


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The models that a hook opened."""
    module = import_module("forerun.engine.engine")
    real, models = module.open_model, []

    def noted(model: Any, **options: Any) -> Any:
        models.append(ref(model))
        return real(model, **options)

    monkeypatch.setattr(module, "open_model", noted)
    return models


def test_a_model_is_opened_once_for_all_its_texts(model: Any, opened: list[Any]) -> None:
    hook = forerun.custom_generate()
    for _ in range(2):
        model.generate(PROMPT, do_sample=False, max_new_tokens=2, custom_generate=hook)
    assert len(opened) == 1


def test_trained_weights_are_seen_at_once(opened: list[Any]) -> None:
    trained = tiny_model("llama")
    hook = forerun.custom_generate()
    options = {"do_sample": False, "max_new_tokens": 8}
    before = trained.generate(PROMPT, **options, custom_generate=hook)
    with torch.no_grad():
        for parameter in trained.parameters():
            parameter.mul_(1.3).add_(0.01)
    after = trained.generate(PROMPT, **options, custom_generate=hook)
    assert not torch.equal(before, after)
    assert torch.equal(after, trained.generate(PROMPT, **options))
    assert len(opened) == 1


def test_exchanged_weights_are_seen_at_once(opened: list[Any]) -> None:
    changed = tiny_model("llama")
    hook = forerun.custom_generate()
    options = {"do_sample": False, "max_new_tokens": 8}
    changed.generate(PROMPT, **options, custom_generate=hook)
    changed.lm_head = torch.nn.Linear(32, 97, bias=False)
    actual = changed.generate(PROMPT, **options, custom_generate=hook)
    assert torch.equal(actual, changed.generate(PROMPT, **options))
    assert len(opened) == 2


def test_a_hook_serves_one_model_after_the_other(model: Any) -> None:
    hook = forerun.custom_generate()
    other = tiny_model("qwen2", seed=4)
    for one in (model, other, model):
        options = {"do_sample": False, "max_new_tokens": 8}
        assert torch.equal(one.generate(PROMPT, **options, custom_generate=hook), one.generate(PROMPT, **options))


def test_a_hook_keeps_neither_its_model_nor_its_weights_alive() -> None:
    mortal = tiny_model("llama")
    hook = forerun.custom_generate("self", drafter_options={"exit_layer": 1})
    mortal.generate(PROMPT, do_sample=False, max_new_tokens=2, custom_generate=hook)
    died, weight = ref(mortal), ref(mortal.lm_head.weight)
    del mortal
    gc.collect()
    assert died() is None
    assert weight() is None


def test_an_error_of_one_text_reaches_the_caller_and_the_hook_goes_on(model: Any, hook: Any) -> None:
    def broken(ids: Tensor, scores: Tensor) -> Tensor:
        return scores * torch.nan

    with pytest.raises(InvalidLogits, match="NaN"):
        model.generate(
            **PADDED,
            do_sample=False,
            max_new_tokens=5,
            logits_processor=[forerun.row_wise(broken)],
            custom_generate=hook,
        )
    written = model.generate(PROMPT, do_sample=False, max_new_tokens=5, custom_generate=hook)
    assert torch.equal(written, model.generate(PROMPT, do_sample=False, max_new_tokens=5))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"policy": "nope"}, "unknown policy 'nope'; known: "),
        ({"policy_options": {"n": 3}}, "policy 'fixed' has no option 'n'; its options: k"),
    ],
)
def test_an_unknown_policy_is_told_at_once(options: Any, message: str) -> None:
    with pytest.raises(UnsupportedOption, match=message):
        forerun.custom_generate(**options)


def test_an_unknown_drafter_is_told_at_once() -> None:
    with pytest.raises(UnsupportedOption, match="unknown drafter 'nope'; known: "):
        forerun.custom_generate("nope")
    with pytest.raises(UnsupportedOption, match="drafter 'lookup' has no option 'n'"):
        forerun.custom_generate("lookup", drafter_options={"n": 1})


def test_the_example_streams_the_text_that_generate_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    example = Path(__file__).parents[2] / "examples" / "transformers_generate.py"
    monkeypatch.setattr(sys, "argv", [str(example), str(save_tiny(tmp_path))])
    names = runpy.run_path(str(example))
    plain = names["model"].generate(**names["inputs"], max_new_tokens=48, do_sample=False)
    assert names["tokenizer"].decode(plain[0]) in capsys.readouterr().out
