import pytest

import forerun
from forerun.bench import calibrate
from forerun.bench.calibrate import Subject, measure, prefixes
from forerun.models.packed.plan import FULL, LayerPlan
from forerun.models.packed.runner import HFRunner
from forerun.testing import tiny_model


@pytest.fixture(scope="module")
def runner() -> HFRunner:
    return forerun.load(tiny_model("llama")).runner


@pytest.mark.parametrize(
    ("plan", "name"),
    [
        (FULL, "full"),
        (LayerPlan.early_exit(3, 5), "exit 3"),
        (LayerPlan.skip(5, (3, 1), (2,)), "skip attention 1,3 mlp 2"),
        (LayerPlan.skip(5, (), (2,)), "skip mlp 2"),
        (LayerPlan(head="head of 100"), "full, head head of 100"),
        (LayerPlan(activations=8), "full, 8-bit activations"),
        (LayerPlan(head="head of 100", activations=16), "full, head head of 100, 16-bit activations"),
    ],
)
def test_a_plan_has_a_name(runner: HFRunner, plan: LayerPlan, name: str) -> None:
    assert Subject(runner, "m", "float32", plan).plan_name == name


def test_a_plan_in_smaller_weights_is_listed_under_them(runner: HFRunner) -> None:
    assert Subject(runner, "m", "bfloat16", LayerPlan(weights="int4")).key == ("m", "int4", "full")
    assert Subject(runner, "m", "bfloat16").key == ("m", "bfloat16", "full")


@pytest.mark.parametrize(
    ("limit", "expected"), [(None, (64, 1024)), (8192, (64, 1024)), (256, (64, 224)), (80, (48,)), (10, (1,))]
)
def test_prefixes_leave_room_for_the_rows(limit: int | None, expected: tuple[int, ...]) -> None:
    assert prefixes(limit) == expected


def test_every_subject_is_measured_at_every_place_that_fits(runner: HFRunner) -> None:
    subjects = [Subject(runner, "m", "float32"), Subject(runner, "m", "float32", LayerPlan.early_exit(2, 4))]
    costs = measure(subjects, repeats=2)
    assert [cost.key for cost in costs.costs] == [("m", "float32", "full"), ("m", "float32", "exit 2")]
    assert costs.target.runner == "HFRunner"
    for cost in costs.costs:
        assert cost.prefixes == (64, 224)
        assert {point.rows for point in cost.points if point.prefix == 64} == {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 128}
        assert {point.rows for point in cost.points if point.prefix == 224} == {1, 2, 3, 4, 6, 8, 12, 16, 24, 32}
        assert all(point.ms > 0 and point.spread >= 0 for point in cost.points)


def test_the_rows_that_are_asked_for_are_the_rows_that_run(runner: HFRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate, "ROWS", (1, 3))
    ran: list[tuple[int, int, LayerPlan]] = []
    execute = runner.execute

    def watching(requests):  # type: ignore[no-untyped-def]
        ran.extend((len(one.tokens), one.part.committed + one.part.first, one.plan) for one in requests)
        return execute(requests)

    monkeypatch.setattr(runner, "execute", watching)
    exit_plan = LayerPlan.early_exit(2, 4)
    measure([Subject(runner, "m", "float32"), Subject(runner, "m", "float32", exit_plan)], repeats=2)
    timed = [one for one in ran if one[0] <= 3]
    for prefix in (64, 224):
        for rows in (1, 3):
            for plan in (FULL, exit_plan):
                assert timed.count((rows, prefix, plan)) == 3
    assert len(timed) == 24


def test_the_order_changes_from_repeat_to_repeat(runner: HFRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate, "ROWS", (1, 2, 3, 4, 6))
    ran: list[tuple[int, int]] = []
    execute = runner.execute

    def watching(requests):  # type: ignore[no-untyped-def]
        ran.extend((len(one.tokens), one.part.committed) for one in requests if len(one.tokens) <= 6)
        return execute(requests)

    monkeypatch.setattr(runner, "execute", watching)
    measure([Subject(runner, "m", "float32")], repeats=2)
    turns = [ran[start : start + 10] for start in (0, 10, 20)]
    assert sorted(turns[0]) == sorted(turns[1]) == sorted(turns[2])
    assert turns[0] != turns[1] != turns[2]


def test_forwards_of_many_rows_are_repeated_less(runner: HFRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate, "ROWS", (1, 128))
    ran: list[int] = []
    execute = runner.execute

    def watching(requests):  # type: ignore[no-untyped-def]
        ran.extend(len(one.tokens) for one in requests)
        return execute(requests)

    monkeypatch.setattr(runner, "execute", watching)
    measure([Subject(runner, "m", "float32")], repeats=5)
    assert ran.count(1) == 12
    assert ran.count(128) == 1 + 3


def test_each_repeat_is_told(runner: HFRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate, "ROWS", (1,))
    ticks: list[None] = []
    measure([Subject(runner, "m", "float32")], lambda: ticks.append(None), repeats=3)
    assert len(ticks) == 4


def test_a_draft_model_is_measured_on_its_own_runner(runner: HFRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate, "ROWS", (1, 2))
    small = forerun.load(tiny_model("llama", num_hidden_layers=2)).runner
    costs = measure([Subject(runner, "big", "float32"), Subject(small, "small", "float32")], repeats=1)
    assert costs.of(model="small").points[0].rows == 1


def test_padding_rests_while_forwards_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate, "ROWS", (1,))
    runner = forerun.load(tiny_model("llama")).runner
    resting: list[bool] = []
    measure([Subject(runner, "m", "float32")], lambda: resting.append(runner.padding is None), repeats=1)
    padding = runner.padding = lambda rows: rows + 3
    measure([Subject(runner, "m", "float32")], lambda: resting.append(runner.padding is None), repeats=1)
    assert all(resting)
    assert len(resting) == 4
    assert runner.padding is padding
