import json
from pathlib import Path

import pytest

import forerun
from forerun.bench import calibrate, calibration
from forerun.bench.calibrate import Subject
from forerun.bench.calibration import Opened, calibrated, pad, use_kept_cost
from forerun.core.cost import Cost, Costs, Point
from forerun.errors import UnsupportedModel
from forerun.models.lean.native.library import SWITCH, processor_levels
from forerun.models.packed.plan import LayerPlan
from forerun.testing import save_tiny

EXIT = LayerPlan.early_exit(2, 4)


class Measured:
    """Stands in for the measurement: remembers what was asked for, answers with its count."""

    def __init__(self) -> None:
        self.asked: list[list[tuple[str, str, str]]] = []

    def __call__(self, subjects: list[Subject], tick: object) -> Costs:
        self.asked.append([subject.key for subject in subjects])
        number = float(len(self.asked))
        return Costs(
            tuple(Cost(s.model, "HFRunner", s.weights, s.plan_name, (Point(1, 64, number),)) for s in subjects)
        )


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Measured:
    monkeypatch.setenv("FORERUN_CACHE", str(tmp_path / "cache"))
    stand_in = Measured()
    monkeypatch.setattr(calibration, "measure", stand_in)
    return stand_in


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def target(folder: Path) -> Opened:
    return Opened(str(folder), forerun.load(folder))


def test_what_was_measured_is_reused(measured: Measured, target: Opened) -> None:
    first, known = calibrated(target)
    again, known_again = calibrated(target)
    assert (known, known_again) == (False, True)
    assert again == first
    assert len(measured.asked) == 1


def test_a_cache_that_cant_be_written_costs_the_next_session_a_measurement(
    measured: Measured,
    target: Opened,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FORERUN_CACHE", str(tmp_path / "file"))
    costs, known = calibrated(target)

    assert costs.target.rows
    assert not known
    assert f"the cache {tmp_path / 'file' / 'costs'} can't be written (Not a directory)" in capsys.readouterr().err
    assert not calibrated(target)[1]


def test_another_session_finds_it_too(measured: Measured, target: Opened, folder: Path) -> None:
    first, _ = calibrated(target)
    again, known = calibrated(Opened(str(folder), forerun.load(folder)))
    assert known
    assert again == first


def test_a_refresh_measures_again(measured: Measured, target: Opened) -> None:
    calibrated(target)
    costs, known = calibrated(target, refresh=True)
    assert not known
    assert costs.target.ms(1) == 2


def test_a_missing_plan_is_measured_together_with_the_target(measured: Measured, target: Opened) -> None:
    calibrated(target)
    costs, known = calibrated(target, [EXIT])
    assert not known
    assert [key[2] for key in measured.asked[1]] == ["full", "exit 2"]
    assert costs.target.ms(1) == costs.of("exit 2").ms(1) == 2


def test_plans_measured_before_stay_known(measured: Measured, target: Opened) -> None:
    other = LayerPlan.skip(4, (1,))
    calibrated(target, [EXIT])
    calibrated(target, [other])
    _, known = calibrated(target, [EXIT, other])
    assert known
    assert len(measured.asked) == 2


@pytest.mark.skipif(not processor_levels(), reason="forerun was installed without a compiler")
def test_other_activations_are_another_measurement(
    measured: Measured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SWITCH, processor_levels()[-1])
    folder = save_tiny(tmp_path / "tiny", intermediate_size=64)
    for activations in (None, 8):
        target = Opened(str(folder), forerun.load(folder, weights="int4", activations=activations), "int4")
        assert not calibrated(target)[1]
        assert calibrated(target)[1]


def test_another_number_of_threads_is_another_measurement(
    measured: Measured, target: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    calibrated(target)
    monkeypatch.setattr("torch.get_num_threads", lambda: 77)
    assert not calibrated(target)[1]


def test_another_number_format_is_another_measurement(measured: Measured, target: Opened, folder: Path) -> None:
    calibrated(target)
    assert not calibrated(Opened(str(folder), forerun.load(folder, dtype="bfloat16")))[1]


def test_smaller_weights_are_another_measurement_under_their_own_name(
    measured: Measured, target: Opened, folder: Path
) -> None:
    calibrated(target)
    costs, known = calibrated(Opened(str(folder), target.engine, "int4"))
    assert not known
    assert (costs.target.weights, calibrated(target)[0].target.weights) == ("int4", "float32")


def test_another_version_is_another_measurement(
    measured: Measured, target: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    calibrated(target)
    monkeypatch.setattr("forerun.engine.measurement_conditions.version", lambda package: "99")
    assert not calibrated(target)[1]


def test_a_larger_model_at_the_same_place_is_another_measurement(measured: Measured, tmp_path: Path) -> None:
    calibrated(Opened(str(tmp_path / "m"), forerun.load(save_tiny(tmp_path / "m"))))
    wider = save_tiny(tmp_path / "m", intermediate_size=96)
    assert not calibrated(Opened(str(wider), forerun.load(wider)))[1]


def test_a_draft_model_has_an_entry_of_its_own(measured: Measured, target: Opened, tmp_path: Path) -> None:
    small = save_tiny(tmp_path / "small", num_hidden_layers=2)
    costs, _ = calibrated(target, [EXIT], Opened(str(small), forerun.load(small)))
    assert [cost.key[0] for cost in costs.costs] == ["tiny", "tiny", "small"]


def test_a_draft_model_of_the_same_name_can_be_told_apart(measured: Measured, target: Opened, tmp_path: Path) -> None:
    same = save_tiny(tmp_path / "tiny", num_hidden_layers=2)
    costs, _ = calibrated(target, draft=Opened(str(same), forerun.load(same)))
    assert [cost.model for cost in costs.costs] == ["tiny", "tiny (draft)"]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"costs": []}', '{"costs": [{"model": "m"}]}', '{"costs": 3}'])
def test_a_damaged_file_is_measured_again(measured: Measured, target: Opened, content: str) -> None:
    calibrated(target)
    (file,) = calibration.cache_directory().glob("costs/*.json")
    file.write_text(content)
    costs, known = calibrated(target)
    assert not known
    assert calibrated(target) == (costs, True)


def test_the_file_says_under_which_conditions_it_was_measured(measured: Measured, target: Opened, folder: Path) -> None:
    calibrated(target)
    files = list(calibration.cache_directory().glob("costs/*"))
    assert [file.suffix for file in files] == [".json"]
    told = json.loads(files[0].read_text())
    assert told["target"]["path"] == str(folder.resolve())
    assert {"bytes", "dtype", "weights", "device", "threads", "hardware", "versions", "runner"} <= set(told["target"])


def test_a_plan_that_the_model_can_not_run_is_refused_before_anything_is_measured(
    measured: Measured, tmp_path: Path
) -> None:
    folder = save_tiny(tmp_path / "opt", "opt", do_layer_norm_before=False)
    with pytest.raises(UnsupportedModel, match="none is skipped"):
        calibrated(Opened(str(folder), forerun.load(folder)), [EXIT])
    assert not measured.asked


def test_a_real_measurement_is_kept_and_read_back(
    target: Opened, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FORERUN_CACHE", str(tmp_path))
    monkeypatch.setattr(calibrate, "ROWS", (1, 2))
    costs, known = calibrated(target, [EXIT])
    assert not known
    assert costs.target.rows == (1, 2)
    assert calibrated(target, [EXIT]) == (costs, True)


def with_points(monkeypatch: pytest.MonkeyPatch, *points: Point) -> None:
    monkeypatch.setattr(
        calibration,
        "measure",
        lambda subjects, tick: Costs(
            tuple(Cost(s.model, "HFRunner", s.weights, s.plan_name, points) for s in subjects)
        ),
    )


@pytest.fixture
def on_modules(measured: Measured, folder: Path) -> Opened:
    return Opened(str(folder), forerun.load(folder, runner="hf"))


def test_nothing_is_padded_without_a_calibration_and_none_is_made(measured: Measured, on_modules: Opened) -> None:
    assert not pad(on_modules)
    assert on_modules.engine.runner.padding is None
    assert not measured.asked


def test_forwards_are_padded_where_more_rows_were_faster(on_modules: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    with_points(monkeypatch, Point(1, 64, 30.0), Point(2, 64, 10.0), Point(4, 64, 12.0))
    calibrated(on_modules)
    assert pad(on_modules)
    assert [on_modules.engine.runner.padding(rows) for rows in (1, 2, 3, 4, 9)] == [2, 2, 3, 4, 9]


def test_padding_does_not_hide_the_calibration_that_it_came_from(
    on_modules: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_points(monkeypatch, Point(1, 64, 30.0), Point(2, 64, 10.0))
    calibrated(on_modules)
    assert pad(on_modules)
    assert calibrated(on_modules)[1]
    assert pad(on_modules)


def test_a_calibration_in_which_one_row_is_fastest_ends_padding(
    on_modules: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_modules.engine.runner.padding = lambda rows: rows + 1
    with_points(monkeypatch, Point(1, 64, 10.0), Point(2, 64, 11.0))
    calibrated(on_modules)
    assert not pad(on_modules)
    assert on_modules.engine.runner.padding is None


def test_the_lean_decoder_is_not_padded(target: Opened, measured: Measured, monkeypatch: pytest.MonkeyPatch) -> None:
    with_points(monkeypatch, Point(1, 64, 30.0), Point(2, 64, 10.0))
    calibrated(target)
    assert not pad(target)


def test_a_kept_calibration_tells_what_the_forwards_cost_as_they_run(
    target: Opened, on_modules: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_points(monkeypatch, Point(1, 64, 30.0), Point(2, 64, 10.0))
    for opened, padded in ((target, False), (on_modules, True)):
        assert not use_kept_cost(opened)
        assert opened.engine.runner.cost is None
        cost = calibrated(opened)[0].target
        assert use_kept_cost(opened) == padded
        assert opened.engine.runner.cost == (cost.padded() if padded else cost)
        assert cost.padded() != cost
