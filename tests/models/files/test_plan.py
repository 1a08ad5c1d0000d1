"""Skip sets in files."""

from __future__ import annotations

from pathlib import Path

import pytest

import forerun
from forerun.errors import UnsupportedOption
from forerun.models.files.plan import read_plan, write_plan
from forerun.models.packed.plan import LayerPlan
from forerun.testing import tiny_model

PLAN = LayerPlan.skip(4, (1, 3), (2,))


def test_what_is_written_is_read(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    for plan in (PLAN, LayerPlan()):
        write_plan(file, plan, "greedy 3", {"model": "tiny"})
        assert read_plan(file, 4) == plan
    file.write_text('{"attention": [0], "mlp": [1]}')
    assert read_plan(str(file), 4) == LayerPlan.skip(4, (0,), (1,))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "must be a JSON file"),
        ("[1]", "a plan is a JSON object with the keys name, attention, mlp, about"),
        ('{"attn": [1]}', "with the keys name, attention, mlp, about"),
        ('{"mlp": [4]}', r"plan.json: a skipped layer must be in 0..3, got 4"),
        ('{"mlp": [true]}', "mlp must be a list of layer numbers"),
        ('{"attention": 3}', "attention must be a list of layer numbers, got 3"),
    ],
)
def test_a_file_without_a_skip_set_is_refused(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "plan.json"
    file.write_text(text)
    with pytest.raises(ValueError, match=words):
        read_plan(file, 4)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no\.json"):
        read_plan(tmp_path / "no.json", 4)


@pytest.mark.parametrize("plan", [LayerPlan.early_exit(2, 4), LayerPlan(weights="int4")])
def test_more_than_a_skip_set_is_not_written(tmp_path: Path, plan: LayerPlan) -> None:
    with pytest.raises(ValueError, match="a plan file holds skipped sublayers and nothing else"):
        write_plan(tmp_path / "plan.json", plan)
    assert not list(tmp_path.iterdir())


def test_the_self_drafter_takes_a_plan_file(tmp_path: Path) -> None:
    write_plan(tmp_path / "plan.json", PLAN)
    engine = forerun.load(tiny_model("llama"))
    named = engine.using("self", drafter_options={"plan": str(tmp_path / "plan.json")})
    given = engine.using("self", drafter_options={"skip_attention": (1, 3), "skip_mlp": (2,)})
    assert named.pair == given.pair
    one, other = (each.generate([5, 6, 7], max_new_tokens=12) for each in (named, given))
    assert one.ids == other.ids == engine.generate([5, 6, 7], max_new_tokens=12).ids
    assert one.stats.drafted == other.stats.drafted > 0


@pytest.mark.parametrize("other", [{"exit_layer": 2}, {"skip_mlp": (1,)}, {"skip_attention": (1,)}])
def test_a_plan_file_stands_alone(tmp_path: Path, other: dict[str, object]) -> None:
    write_plan(tmp_path / "plan.json", PLAN)
    with pytest.raises(UnsupportedOption, match="one of them"):
        forerun.load(
            tiny_model("llama"), drafter="self", drafter_options={"plan": str(tmp_path / "plan.json"), **other}
        )


def test_a_byte_order_mark_does_not_matter(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text('{"attention": [0], "mlp": [1]}', encoding="utf-8-sig")
    assert read_plan(file, 4) == LayerPlan.skip(4, (0,), (1,))
