"""On native kernels, speculative texts are plain texts, greedy and drawn, alone and in a batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from forerun import Engine, load
from forerun.errors import UnsupportedOption
from forerun.models.lean.adapter_runner import AdapterRunner
from forerun.models.lean.native.library import SWITCH, processor_levels
from forerun.testing import END, save_tiny, save_tiny_adapter, tiny_model, tiny_tokenizer

from .carving import PROMPTS, check_seeds, check_text, save_carvable

METHODS: dict[str, dict[str, Any]] = {
    "lookup": {},
    "exit": {"exit_layer": 2},
    "skip": {"skip_attention": [1, 2], "skip_mlp": [2]},
    "small": {"exit_layer": 2, "weights": "int8", "vocabulary": 200},
    "coarse": {"exit_layer": 2, "activations": 8},
    "draft_model": {},
    "frequent": {"vocabulary": 100, "weights": "int8"},
    "state": {"weights": "int4"},
    "state+token": {"weights": "int4", "vocabulary": 100},
    "coarse_draft_model": {"activations": 8},
    "tree": {"of": "self", "exit_layer": 2},
}
DRAFTERS = {
    **dict.fromkeys(("exit", "skip", "small", "coarse"), "self"),
    **dict.fromkeys(("state", "state+token"), "exit_adapter"),
    **dict.fromkeys(("frequent", "coarse_draft_model"), "draft_model"),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_carvable(tmp_path_factory.mktemp("models") / "target")


@pytest.fixture(scope="module")
def draft(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("models") / "draft", seed=1, intermediate_size=64, num_hidden_layers=2)


def opened(model: Path, **form: Any) -> Engine:
    """The model on native kernels, where there are some."""
    levels = processor_levels()
    if not levels:
        pytest.skip("forerun was installed without a compiler")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SWITCH, levels[-1])
        return load(model, drafter="none", **form)


@pytest.fixture(scope="module")
def plain(model: Path) -> Engine:
    return opened(model, weights="int4")


@pytest.fixture(scope="module")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Exit adapters of the model, by what they read."""
    model = tiny_model("llama", vocab_size=len(tiny_tokenizer()), eos_token_id=END, intermediate_size=64)
    folder = tmp_path_factory.mktemp("adapters")
    return {
        inputs: save_tiny_adapter(folder / inputs, model, 2, inputs, tokenizer=tiny_tokenizer())
        for inputs in ("state", "state+token")
    }


@pytest.mark.parametrize("method", METHODS)
def test_texts_are_plain_texts(
    method: str, plain: Engine, draft: Path, adapters: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SWITCH, processor_levels()[-1])
    drafter = DRAFTERS.get(method, method)
    needed = {"draft_model": {"model": str(draft)}, "exit_adapter": {"adapter": str(adapters.get(method))}}
    options = {**METHODS[method], **needed.get(drafter, {})}
    engine = plain.using(drafter, "fixed", drafter_options=options, policy_options={"k": 3})
    assert all(runner.kernels.startswith("native") for runner in engine.runners)
    assert drafter != "exit_adapter" or isinstance(engine.runners[-1], AdapterRunner)
    check_text(plain, engine)
    check_seeds(engine)


def test_log_probabilities_are_equal_to_the_last_bit(plain: Engine) -> None:
    engine = plain.using("lookup", "fixed", policy_options={"k": 3})
    for prompt in PROMPTS:
        one, other = (side.generate(prompt, max_new_tokens=12, logprobs=True) for side in (plain, engine))
        assert one.logprobs == other.logprobs


def test_a_coarser_target_has_texts_of_its_own_that_drafts_leave_alone(
    model: Path, plain: Engine, draft: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SWITCH, processor_levels()[-1])
    coarse = load(model, weights="int4", drafter="none", activations=8)
    assert (plain.runner.activations, coarse.runner.activations) == (16, 8)
    for drafter, options in (("self", METHODS["exit"]), ("draft_model", {"model": str(draft), "activations": 16})):
        check_text(coarse, coarse.using(drafter, "fixed", drafter_options=options, policy_options={"k": 3}))


@pytest.mark.parametrize("options", [{}, {"weights": "int4"}])
def test_activations_are_refused_where_no_native_step_runs(
    model: Path, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SWITCH, "off")
    with pytest.raises(UnsupportedOption, match="doesn't run there"):
        load(model, drafter="none", activations=16, **options)
    with pytest.raises(UnsupportedOption, match="in 8 or 16 bits, got 12"):
        load(model, activations=12, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def in_bfloat16(model: Path) -> Engine:
    return opened(model, dtype="bfloat16", runner="lean")


@pytest.mark.parametrize(
    "options",
    [{"weights": "int4"}, {"weights": "int4", "exit_layer": 2, "vocabulary": 200}, {"weights": "float32"}],
    ids=str,
)
def test_a_bfloat16_model_drafts_with_itself_in_other_weights(options: dict[str, Any], in_bfloat16: Engine) -> None:
    engine = in_bfloat16.using("self", "fixed", drafter_options=options, policy_options={"k": 3})
    assert engine.runner.kernels.startswith("native")
    assert engine.runner.same_bits
    check_text(in_bfloat16, engine)
    check_seeds(engine)
