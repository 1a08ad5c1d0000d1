from __future__ import annotations

import errno
import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from forerun.train.output_folder import OutputFolder, check_output, check_space

ABOUT = {"model": "tiny", "settings": {"seed": 1, "pair": (1, 2)}}


def checkpoint(work: OutputFolder, step: int, state: str | None = "{}") -> Path:
    folder = work.path / f"checkpoint-{step}"
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_text("weights")
    if state is not None:
        (folder / "trainer_state.json").write_text(state)
    return folder


@pytest.fixture
def work(tmp_path: Path) -> OutputFolder:
    work = OutputFolder(tmp_path / "deep" / "out", ABOUT)
    work.open()
    return work


def test_an_output_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="exists already"):
        check_output(tmp_path, resume=False)


def test_an_interrupted_run_is_gone_on_with_only_if_asked(work: OutputFolder) -> None:
    check_output(work.output, resume=True)
    with pytest.raises(ValueError, match=r"interrupted run is at .*out.part; continue it with --resume, or remove it"):
        check_output(work.output, resume=False)


def test_there_must_be_something_to_resume(tmp_path: Path) -> None:
    check_output(tmp_path / "out", resume=False)
    with pytest.raises(ValueError, match="nothing to resume"):
        check_output(tmp_path / "out", resume=True)


def test_the_same_run_opens_its_place_again_and_another_does_not(work: OutputFolder) -> None:
    OutputFolder(work.output, ABOUT).open()
    with pytest.raises(ValueError, match="had another model: tiny there, large now"):
        OutputFolder(work.output, {**ABOUT, "model": "large"}).open()


def test_the_last_whole_checkpoint_is_found(work: OutputFolder) -> None:
    assert work.checkpoint() is None
    checkpoint(work, 9)
    expected = checkpoint(work, 10)
    checkpoint(work, 11, state=None)
    checkpoint(work, 12, state='{"half": ')

    assert work.checkpoint() == expected


def test_a_failure_leaves_whole_checkpoints_only(work: OutputFolder) -> None:
    whole = checkpoint(work, 5)
    broken = checkpoint(work, 6, state=None)

    with pytest.raises(KeyboardInterrupt), work.guarded():
        raise KeyboardInterrupt

    assert whole.exists()
    assert not broken.exists()


def test_a_failure_before_the_first_checkpoint_leaves_nothing(work: OutputFolder) -> None:
    checkpoint(work, 6, state=None)

    with pytest.raises(RuntimeError, match="bad"), work.guarded():
        raise RuntimeError("bad")

    assert not work.path.exists()


def test_what_was_dear_is_kept_without_a_checkpoint(tmp_path: Path) -> None:
    work = OutputFolder(tmp_path / "out", ABOUT, expensive=lambda part: [part / "states"])
    work.open()
    for folder in ("states", "logs"):
        (work.path / folder).mkdir()
    (work.path / "logs.txt").write_text("told")
    broken = checkpoint(work, 6, state=None)

    with (
        pytest.raises(ValueError, match=r"free some space \(--resume continues from states\)"),
        work.guarded(),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")

    assert not broken.exists()
    assert sorted(one.name for one in work.path.iterdir()) == ["run.json", "states"]
    check_output(work.output, resume=True)


def test_with_a_checkpoint_nothing_else_is_touched(tmp_path: Path) -> None:
    work = OutputFolder(tmp_path / "out", ABOUT, expensive=lambda part: [part / "states"])
    work.open()
    checkpoint(work, 3)
    (work.path / "logs").mkdir()

    with pytest.raises(KeyboardInterrupt), work.guarded():
        raise KeyboardInterrupt

    assert sorted(one.name for one in work.path.iterdir()) == ["checkpoint-3", "logs", "run.json"]


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        RuntimeError("[enforce fail] PytorchStreamWriter failed writing file data/0: file write failed"),
    ],
)
def test_a_full_disk_is_said_in_a_sentence(work: OutputFolder, error: Exception) -> None:
    with (
        pytest.raises(ValueError, match=r"no space left to write to .*free some space \(nothing of the run was kept\)"),
        work.guarded(),
    ):
        raise error

    assert not work.path.exists()


def test_a_full_disk_says_where_to_go_on(work: OutputFolder) -> None:
    checkpoint(work, 7)

    with pytest.raises(ValueError, match="--resume continues from checkpoint-7"), work.guarded():
        raise OSError(errno.ENOSPC, "No space left on device")


def test_what_is_complete_moves_to_the_output_with_its_logs(work: OutputFolder) -> None:
    model, logs = work.path / "model", work.path / "logs"
    for folder in (model, logs):
        folder.mkdir()
        (folder / "file").write_text("here")
    checkpoint(work, 3)

    work.finish(model, logs)

    assert (work.output / "file").read_text() == (work.output / "logs" / "file").read_text() == "here"
    assert not work.path.exists()


def test_too_little_room_is_refused_before_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda place: SimpleNamespace(free=10**9))

    check_space(tmp_path / "new" / "out", 10**9)
    with pytest.raises(ValueError, match=r"needs 2.5 GB .* there are 1.0 GB free at .*; free some space"):
        check_space(tmp_path / "new" / "out", 25 * 10**8)


def test_the_record_of_the_run_is_readable(work: OutputFolder) -> None:
    assert json.loads((work.path / "run.json").read_text())["settings"] == {"seed": 1, "pair": [1, 2]}
