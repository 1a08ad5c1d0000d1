"""A draft model trained whole: it learns, it drafts here and in transformers, and a kill costs little."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from forerun import load
from forerun.errors import UnsupportedOption
from forerun.models.files.draft import read_draft
from forerun.models.files.draft_shape import DraftShape
from forerun.models.loading.load import Module
from forerun.testing import VOCABULARY
from forerun.train.distil.draft_init import Cut
from forerun.train.distil.draft_run import DraftStudent, train_draft
from forerun.train.distil.loop import Progress
from forerun.train.distil.loss import Chosen
from forerun.train.distil.recipe import DistilRecipe
from forerun.train.distil.run import DistilReport, DistilRun

from ..adapting import LAYERS, answered, base, engine, frozen, identity, killed_at, run_to, store_of

RECIPE = DistilRecipe(epochs=12, passes=1, rows=60, learning_rate=3e-3, warmup=2, vocabulary=VOCABULARY)


def cut(*layers: int, **changes: int) -> Cut:
    return Cut(replace(DraftShape.of(base().config), layers=len(layers), **changes), layers)


def a_run(output: Path, shape: Cut | None = None, **changes: Any) -> DistilRun[Cut]:
    return run_to(output, **{"shape": cut(0, 3) if shape is None else shape, "recipe": RECIPE, **changes})


def trained(run: DistilRun[Cut], log: Callable[[Progress], None] = lambda now: None) -> DistilReport:
    module = Module(base(), None, "tiny", None)
    return train_draft(run, module, identity(), engine, lambda *bar: lambda: None, log)


def weights(directory: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = AutoModelForCausalLM.from_pretrained(directory).state_dict()
    return found


@pytest.mark.parametrize("shape", [cut(0, 3), cut(1, 3, width=24, mlp=32, heads=2, kv_heads=1)])
def test_a_draft_learns_and_drafts_what_the_target_says(tmp_path: Path, shape: Cut) -> None:
    told: list[Progress] = []
    report = trained(a_run(tmp_path / "draft", shape, recipe=replace(RECIPE, epochs=40)), told.append)
    assert told[-1].loss < 0.7 * told[0].loss
    assert all(len(now.passes) == 1 for now in told)
    assert (report.texts, report.held_out, len(report.acceptance)) == (6, 2, 4)
    config = AutoModelForCausalLM.from_pretrained(report.output).config
    assert (config.num_hidden_layers, config.hidden_size) == (2, shape.shape.width)
    assert config.dtype == torch.bfloat16

    drafting = load(base(), drafter="draft_model", drafter_options={"model": report.output}, policy_options={"k": 3})
    learnt = next(example for example in answered() if len(example.ids) > 12)
    asked, new = list(learnt.ids[: learnt.start]), len(learnt.ids) - learnt.start
    plain = engine().generate(asked, max_new_tokens=new)
    result = drafting.generate(asked, max_new_tokens=new)
    assert result.ids == plain.ids
    assert result.stats.acceptance > 0


def test_transformers_drafts_with_it_as_an_assistant(tmp_path: Path) -> None:
    report = trained(a_run(tmp_path / "draft"))
    draft = AutoModelForCausalLM.from_pretrained(report.output, dtype=torch.float32)
    target = copy.deepcopy(base())
    ids = torch.tensor([answered()[3].ids[:4]])
    given = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0}
    expected = target.generate(ids, attention_mask=torch.ones_like(ids), **given)
    found = target.generate(ids, attention_mask=torch.ones_like(ids), assistant_model=draft, **given)
    assert torch.equal(found, expected)


def test_it_knows_the_tokens_of_its_answers_and_how_many_it_tells_apart(tmp_path: Path) -> None:
    report = trained(a_run(tmp_path / "draft", cut(0, 3, vocabulary=20), recipe=replace(RECIPE, vocabulary=20)))
    file = read_draft(report.output)
    assert file is not None
    assert file.vocabulary == 20
    answers = {token for one in answered() for token in one.ids}
    assert set(file.ranking.tolist()) <= answers
    assert file.trained["shape"]["layers"] == [0, 3]
    assert file.trained["acceptance"] == list(report.acceptance)


def test_what_it_learns_is_what_lies_between_the_tables() -> None:
    tokens = torch.tensor([3, 5])
    student = DraftStudent(copy.deepcopy(base()), None, tokens)
    names = set(student.trained())
    assert names == {name for name, _ in base().named_parameters()} - {"model.embed_tokens.weight", "lm_head.weight"}
    assert torch.equal(student.head, base().lm_head.weight[tokens])


def test_its_pass_is_what_its_own_head_reads_of_each_token() -> None:
    from forerun.train.distil.data import DistilBatch

    student = DraftStudent(copy.deepcopy(base()), None, torch.arange(VOCABULARY))
    ids = torch.tensor([answered()[0].ids, answered()[5].ids[: len(answered()[0].ids)]])
    nothing = torch.empty(0)
    with torch.no_grad():
        (out,) = student.passes(DistilBatch(ids, nothing, nothing, nothing), 3)
        expected = base()(input_ids=ids[:, :-1], use_cache=False).logits
    torch.testing.assert_close(out @ student.head.mT, expected, atol=1e-4, rtol=1e-4)


def test_a_draft_that_is_the_target_is_always_right(tmp_path: Path) -> None:
    report = trained(a_run(tmp_path / "draft", cut(0, 1, 2, 3), recipe=replace(RECIPE, epochs=1, learning_rate=1e-9)))
    assert report.acceptance[0] > 0.95


def test_a_killed_run_ends_bit_for_bit_as_an_uninterrupted_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shape = cut(0, 2, width=16)
    trained(a_run(tmp_path / "whole", shape))
    run = a_run(tmp_path / "killed", shape)
    killed_at(5, partial(trained, run), monkeypatch)
    told: list[Progress] = []
    trained(replace(run, resume=True), told.append)
    assert told[0].step == 5
    whole, resumed = weights(tmp_path / "whole"), weights(tmp_path / "killed")
    assert whole.keys() == resumed.keys()
    assert all(torch.equal(value, resumed[name]) for name, value in whole.items())


def test_a_checkpoint_holds_what_is_trained_and_no_tables(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    from forerun.train.distil.data import DistilData
    from forerun.train.distil.loop import Training

    with_states = store_of(tmp_path / "states", answered(), (LAYERS,))
    student = DraftStudent(copy.deepcopy(base()), None, torch.arange(VOCABULARY))
    data = DistilData(answered(), [with_states], LAYERS, LAYERS)
    chosen = Chosen(torch.arange(VOCABULARY), frozen().head.float())
    training = Training(student, frozen(), chosen, data, RECIPE)
    next(training.run())
    training.save(tmp_path / "checkpoint.safetensors")
    with_states.close()
    names = load_file(tmp_path / "checkpoint.safetensors")
    assert "student.model.layers.0.mlp.up_proj.weight" in names
    assert not any("embed_tokens" in name or "lm_head" in name for name in names)


def test_other_layers_are_another_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = a_run(tmp_path / "draft")
    killed_at(3, partial(trained, run), monkeypatch)
    with pytest.raises(ValueError, match=r"had another shape: .*\[0, 3\].*\[0, 2\]"):
        trained(replace(run, shape=cut(0, 2), resume=True))


def test_a_shape_that_the_target_can_not_begin_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedOption, match=r"a draft's mlp must be in 1\.\.48"):
        trained(a_run(tmp_path / "draft", cut(0, mlp=49)))
    assert list(tmp_path.iterdir()) == []
