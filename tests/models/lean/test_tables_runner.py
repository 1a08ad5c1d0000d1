"""What stands for a target that runs elsewhere: a compact draft on it says what it says on the target itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from forerun.core.identity import identity_of
from forerun.errors import InvalidModelFile, UnsupportedModel
from forerun.models.lean.compact_runner import compact_runner
from forerun.models.lean.native.library import SWITCH
from forerun.models.lean.runner import LeanRunner
from forerun.models.lean.tables_runner import TablesRunner, identity_in
from forerun.models.packed.plan import FULL
from forerun.models.packed.sequence import Sequence
from forerun.testing import tiny_draft, tiny_model

from ..running import finish, text

CPU = torch.device("cpu")


def tiny(tied: bool = False) -> Any:
    return tiny_model("llama", intermediate_size=64, tie_word_embeddings=tied)


def saved(folder: Path, model: Any, **options: Any) -> TablesRunner:
    model.save_pretrained(folder / "model", **options)
    return TablesRunner(folder / "model", model.config, torch.float32, CPU)


@pytest.mark.parametrize("kernels", ["", "off"])
@pytest.mark.parametrize("tied", [False, True])
def test_a_draft_says_what_it_says_on_its_target(
    tmp_path: Path, tied: bool, kernels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SWITCH, kernels)
    model = tiny(tied)
    draft = tiny_draft(model, (0, 3))
    tables = saved(tmp_path, model)
    target = LeanRunner.from_model(model)
    here, there = (compact_runner(draft, base) for base in (tables, target))
    rows = [finish(Sequence(runner).forward(text(12))).logits for runner in (here, there)]

    assert torch.equal(rows[0], rows[1])
    assert here.kernels == there.kernels


def test_weights_in_several_files_are_found(tmp_path: Path) -> None:
    model = tiny()
    tables = saved(tmp_path, model, max_shard_size="20KB")
    (tmp_path / "model" / "other.safetensors").write_bytes(b"of another program")

    assert len(list((tmp_path / "model").glob("*.safetensors"))) > 2
    assert torch.equal(tables.embed(torch.tensor([3])), model.get_input_embeddings().weight[[3]])


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_identity_is_the_models(tmp_path: Path, tied: bool, dtype: torch.dtype) -> None:
    model = tiny(tied)
    wanted = identity_of(model, {"a": 1})
    saved(tmp_path, model.to(dtype))

    assert identity_in(tmp_path / "model", model.config, {"a": 1}) == wanted
    assert identity_in(tmp_path / "model", model.config, None).vocabulary == ""


def test_files_without_tables_are_refused(tmp_path: Path) -> None:
    tables = TablesRunner(tmp_path, tiny().config, torch.float32, CPU)
    with pytest.raises(UnsupportedModel, match=r"holds no model.embed_tokens.weight in safetensors, .* forerun export"):
        compact_runner(tiny_draft(tiny(), (0,)), tables)


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    tables = saved(tmp_path, tiny())
    (tmp_path / "model" / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(InvalidModelFile, match=r"the weights in .* can't be read: "):
        tables.embed(torch.tensor([3]))


def test_a_type_that_the_native_step_lacks_runs_on_torch(tmp_path: Path) -> None:
    tables = TablesRunner(tmp_path, tiny().config, torch.float16, CPU)

    assert tables.native == "the native step holds floats in float32 and bfloat16, not in torch.float16"


def test_it_runs_nothing(tmp_path: Path) -> None:
    tables = saved(tmp_path, tiny())
    for asks in (lambda: tables.new_store(1), lambda: tables.execute([]), lambda: tables.check_plan(FULL)):
        with pytest.raises(UnsupportedModel, match="model runs in another engine; only its tables are here"):
            asks()
