"""On native kernels, speculative texts are plain texts, greedy and drawn, alone and in a batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from forerun import Engine, load
from forerun.models.lean.native.library import SWITCH, processor_levels
from forerun.testing import save_tiny

from .carving import PROMPTS, check_seeds, check_text, save_carvable

METHODS: dict[str, dict[str, Any]] = {
    "lookup": {},
    "exit": {"exit_layer": 2},
    "skip": {"skip_attention": [1, 2], "skip_mlp": [2]},
    "small": {"exit_layer": 2, "weights": "int8", "vocabulary": 200},
    "draft_model": {},
    "tree": {"of": "self", "exit_layer": 2},
}
DRAFTERS = {"exit": "self", "skip": "self", "small": "self"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_carvable(tmp_path_factory.mktemp("models") / "target")


@pytest.fixture(scope="module")
def draft(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("models") / "draft", seed=1, intermediate_size=64, num_hidden_layers=2)


@pytest.fixture(scope="module")
def plain(model: Path) -> Engine:
    levels = processor_levels()
    if not levels:
        pytest.skip("forerun was installed without a compiler")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SWITCH, levels[-1])
        return load(model, weights="int4", drafter="none")


@pytest.mark.parametrize("method", METHODS)
def test_texts_are_plain_texts(method: str, plain: Engine, draft: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, processor_levels()[-1])
    options = {**METHODS[method], **({"model": str(draft)} if method == "draft_model" else {})}
    engine = plain.using(DRAFTERS.get(method, method), "fixed", drafter_options=options, policy_options={"k": 3})
    assert engine.runner.kernels.startswith("native")
    check_text(plain, engine)
    check_seeds(engine)


def test_log_probabilities_are_equal_to_the_last_bit(plain: Engine) -> None:
    engine = plain.using("lookup", "fixed", policy_options={"k": 3})
    for prompt in PROMPTS:
        one, other = (side.generate(prompt, max_new_tokens=12, logprobs=True) for side in (plain, engine))
        assert one.logprobs == other.logprobs


@pytest.fixture(scope="module")
def in_bfloat16(model: Path) -> Engine:
    levels = processor_levels()
    if not levels:
        pytest.skip("forerun was installed without a compiler")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SWITCH, levels[-1])
        return load(model, dtype="bfloat16", runner="lean", drafter="none")


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
