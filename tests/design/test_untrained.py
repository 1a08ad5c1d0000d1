"""Random models in a draft's shape: their size, their runner, and that one deep model stands for shallower ones."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

import forerun
from forerun.core.chance import Seeded
from forerun.core.drive import drive
from forerun.core.forward import Rows
from forerun.core.values import Context
from forerun.design.untrained import UntrainedDraft, config_of, plan_of, untrained
from forerun.engine.engine import Engine
from forerun.errors import ModelNotFound, UnsupportedOption
from forerun.models.files.draft_shape import DraftShape
from forerun.models.lean.native.library import SWITCH, processor_levels
from forerun.models.lean.runner import LeanRunner
from forerun.models.packed.plan import FULL, LayerPlan
from forerun.models.packed.runner import HFRunner, Runner
from forerun.models.packed.sequence import Sequence
from forerun.testing import BYTES, SPECIAL, save_tiny

VOCABULARY = BYTES + len(SPECIAL)


@pytest.fixture(scope="module")
def config(tiny: Path) -> Any:
    return config_of(str(tiny))


def shape(config: Any, text: str) -> DraftShape:
    return DraftShape.parse(text, config)


def test_a_models_configuration_is_read_without_its_weights(config: Any) -> None:
    assert DraftShape.of(config) == DraftShape(4, 32, 48, 4, 2, VOCABULARY)


def test_a_model_that_isnt_there_is_refused() -> None:
    with pytest.raises(ModelNotFound, match="there is no such file or directory"):
        config_of("/nowhere/at/all")


def test_it_runs_as_a_draft_of_the_target_would(engine: Engine, config: Any, tiny: Path) -> None:
    wanted = shape(config, "layers=2,width=16,mlp=24,heads=2")
    runner = untrained(config, wanted, engine, "")
    assert isinstance(engine.runner, LeanRunner)
    assert isinstance(runner, LeanRunner)
    assert (runner.num_layers, runner.vocab_size, runner.dtype) == (2, VOCABULARY, torch.float32)
    plain = forerun.load(tiny, runner="hf")
    assert isinstance(untrained(config, wanted, plain, ""), HFRunner)


def test_it_is_held_in_the_targets_weights(tiny: Path, config: Any) -> None:
    small = forerun.load(tiny, weights="int8")
    dense, held = (untrained(config, shape(config, "layers=2"), small, weights) for weights in ("", "int8"))
    assert isinstance(dense, LeanRunner)
    assert isinstance(held, LeanRunner)
    assert held.nbytes < dense.nbytes


@pytest.mark.skipif(not processor_levels(), reason="forerun was installed without a compiler")
def test_it_takes_the_targets_activations_where_it_runs_natively(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SWITCH, processor_levels()[-1])
    folder = save_tiny(tmp_path / "tiny", intermediate_size=64)
    config, coarse = config_of(str(folder)), forerun.load(folder, weights="int4", activations=8)
    for mlp, bits in ((64, 8), (48, None)):
        runner = untrained(config, shape(config, f"layers=2,mlp={mlp}"), coarse, "int8")
        assert runner.activations == bits


def test_its_weights_are_the_same_each_time_and_leave_torchs_generator_alone(engine: Engine, config: Any) -> None:
    before = torch.get_rng_state()
    one, other = (untrained(config, shape(config, "layers=1"), engine, "") for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    ids = torch.arange(5)
    assert torch.equal(one.embed(ids), other.embed(ids))


def test_a_shape_larger_than_the_target_is_refused(engine: Engine, config: Any) -> None:
    with pytest.raises(UnsupportedOption, match=r"a draft's layers must be in 1\.\.4"):
        untrained(config, shape(config, "layers=5"), engine, "")


def test_weights_without_such_matrices_are_refused(engine: Engine, config: Any) -> None:
    with pytest.raises(UnsupportedOption, match="int4 weights come in groups of 32 columns"):
        untrained(config, shape(config, "width=16"), engine, "int4")


def test_a_plan_has_the_shapes_depth_and_vocabulary(engine: Engine, config: Any) -> None:
    runner = untrained(config, shape(config, "layers=3"), engine, "")
    assert plan_of(runner, shape(config, "layers=3")) == FULL
    assert plan_of(runner, shape(config, "layers=2")).exit_layer == 2
    cut = plan_of(runner, shape(config, "layers=2,vocabulary=40"))
    assert cut.exit_layer == 2
    assert "40 tokens" in cut.head


def test_transformers_modules_have_no_head_to_cut(tiny: Path, config: Any) -> None:
    runner = untrained(config, shape(config, "layers=2"), forerun.load(tiny, runner="hf"), "")
    with pytest.raises(UnsupportedOption, match="whose head is whole"):
        plan_of(runner, shape(config, "layers=2,vocabulary=40"))


def drafted(runner: Any, wanted: DraftShape, ids: list[int], known: int) -> list[int]:
    drafter = UntrainedDraft(runner, plan_of(runner, wanted), known)
    return [step.tokens[0] for step in islice(drive(drafter.draft(Context(ids, Seeded(0)))), 4)]


def test_a_deep_models_early_exit_drafts_what_the_shallow_model_would(engine: Engine, config: Any) -> None:
    deep = untrained(config, shape(config, "layers=3"), engine, "")
    shallow = shape(config, "layers=1")
    ids = [5, 6, 7, 8, 9, 10]
    (rows,) = drive(_forward(deep, ids, LayerPlan.early_exit(1, 3)))
    expected = [int(rows.logits[-1].argmax())]
    assert drafted(deep, shallow, ids, 4)[:1] == expected
    assert drafted(deep, shallow, ids, 4) != drafted(deep, shape(config, "layers=3"), ids, 4)


async def _forward(runner: Runner, ids: list[int], plan: LayerPlan) -> AsyncGenerator[Rows]:
    yield await Sequence(runner).forward(ids, plan=plan)


def test_what_was_known_before_doesnt_change_a_draft(engine: Engine, config: Any) -> None:
    wanted = shape(config, "layers=2")
    runner = untrained(config, wanted, engine, "")
    ids = [5, 6, 7, 8, 9, 10]
    assert drafted(runner, wanted, ids, 2) == drafted(runner, wanted, ids, 5)


def test_a_cut_head_drafts_among_its_tokens(engine: Engine, config: Any) -> None:
    wanted = shape(config, "layers=2,vocabulary=6")
    runner = untrained(config, wanted, engine, "")
    assert max(drafted(runner, wanted, [50, 60, 70, 80], 2)) < 6
