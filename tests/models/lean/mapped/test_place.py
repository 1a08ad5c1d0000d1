"""Places of packed weights: what is read is what was asked for, and what can't be kept is done without."""

from __future__ import annotations

import errno
import os
import shutil
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from forerun.errors import UnsupportedOption
from forerun.models.lean.mapped import place as module
from forerun.models.lean.mapped.file import PARTIAL
from forerun.models.lean.mapped.place import Place, kept_bytes, switched_off, weights_folder

ABOUT = {"decoder": 1}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "my model.gguf").write_text("GGUF")
    return tmp_path / "my model.gguf"


@pytest.fixture
def place(tmp_path: Path, model: Path) -> Place:
    return Place.of(tmp_path / "weights", origin(model))


def origin(path: Path, **changes: Any) -> Mapping[str, Any]:
    own = {"model": str(path), "files": [["m", 4]], "weights": "int4", "dtype": "", "code": "a" * 16}
    return own | changes


def write(place: Place, value: float = 1.0) -> str | None:
    with place.turn() as reason:
        return reason or place.write(ABOUT, [torch.full((100,), value)])


def no_folder(tmp_path: Path) -> Path:
    """A path that not even root can make: its parent is a file."""
    (tmp_path / "file").write_text("")
    return tmp_path / "file" / "weights"


def test_what_was_written_is_read(place: Place) -> None:
    assert place.read() is None
    assert write(place) is None
    found = place.read()
    assert found is not None
    assert found.about == ABOUT | {"origin": place.origin}
    assert torch.equal(found.tensors[0], torch.ones(100))


def test_a_name_says_model_form_and_code(place: Place) -> None:
    assert place.file.name.startswith("my_model-int4-")
    assert place.file.name.endswith("-aaaaaaaa.safetensors")


@pytest.mark.parametrize("change", [{"weights": "int8"}, {"dtype": "float32"}, {"model": "/other/my model.gguf"}])
def test_other_forms_and_models_have_other_files(place: Place, model: Path, change: dict[str, Any]) -> None:
    assert Place.of(place.folder, origin(model, **change)).file != place.file


@pytest.mark.parametrize("change", [{"files": [["m", 5]]}, {"code": "a" * 8 + "b" * 8}])
def test_a_stale_file_is_not_read_and_is_replaced(place: Place, model: Path, change: dict[str, Any]) -> None:
    write(place)
    changed = Place.of(place.folder, origin(model, **change))
    assert changed.file == place.file
    assert changed.read() is None
    write(changed, 2.0)
    found = changed.read()
    assert found is not None
    assert found.tensors[0][0] == 2
    assert place.read() is None


@pytest.mark.parametrize("damage", [b"", b"not a file of ours", b"\0" * 5000])
def test_a_damaged_file_is_not_read_and_is_replaced(place: Place, damage: bytes) -> None:
    write(place)
    place.file.write_bytes(damage)
    assert place.read() is None
    assert write(place) is None
    assert place.read() is not None


def test_a_folder_in_the_files_place_is_no_file(place: Place) -> None:
    place.file.mkdir(parents=True)
    assert place.read() is None
    reason = write(place)
    assert reason is not None
    assert "can't be written (Is a directory)" in reason


def test_a_folder_that_cannot_be_made_is_a_reason(tmp_path: Path, model: Path) -> None:
    place = Place.of(no_folder(tmp_path), origin(model))
    assert place.read() is None
    reason = write(place)
    assert reason is not None
    assert reason.startswith(f"{place.folder} can't be written (")


def test_a_read_only_folder_is_a_reason(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any, **__: Any) -> Any:
        raise OSError(errno.EROFS, "Read-only file system")

    place.folder.mkdir()
    monkeypatch.setattr("os.open", refused)
    assert write(place) == f"{place.folder} can't be written (Read-only file system)"


def test_a_full_disk_is_a_reason_and_leaves_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    assert write(place) == f"{place.folder} can't be written (No space left on device)"
    assert [file.suffix for file in place.folder.iterdir()] == [".lock"]


def test_a_disk_is_not_filled(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage("/")
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage._replace(free=799))
    assert write(place) == f"the disk of {place.folder} has less than 0 MB left"
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage._replace(free=800))
    assert write(place) is None


def test_a_file_can_be_read_where_its_time_cannot_be_set(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    write(place)
    monkeypatch.setattr("os.utime", refused)
    assert place.read() is not None


def test_only_one_at_a_time_makes_the_file_and_others_find_it(place: Place) -> None:
    made: list[int] = []

    def start(number: int) -> None:
        with place.turn() as reason:
            assert reason is None
            if place.read() is None:
                made.append(number)
                time.sleep(0.05)
                place.write(ABOUT, [torch.ones(3)])

    threads = [threading.Thread(target=start, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1


def test_an_error_in_the_turn_ends_it(place: Place) -> None:
    with pytest.raises(RuntimeError), place.turn():
        raise RuntimeError
    assert write(place) is None


def test_of_other_code_only_the_last_file_stays(place: Place, model: Path) -> None:
    others = [Place.of(place.folder, origin(model, code=letter * 16)) for letter in "bcd"]
    for age, other in enumerate(others):
        write(other)
        os.utime(other.file, (1000 - age, 1000 - age))
    write(place)
    assert {file.name for file in place.folder.glob("*.safetensors")} == {place.file.name, others[0].file.name}


def test_files_of_other_forms_stay(place: Place, model: Path) -> None:
    other = Place.of(place.folder, origin(model, weights="int8"))
    write(other)
    write(place)
    assert other.read() is not None


def test_files_of_models_that_are_gone_go(place: Place, model: Path, tmp_path: Path) -> None:
    gone = Place.of(place.folder, origin(tmp_path / "gone.gguf"))
    write(gone)
    write(place)
    assert [file.name for file in place.folder.glob("*.safetensors")] == [place.file.name]


def test_what_is_not_ours_stays(place: Place) -> None:
    write(place)
    foreign = place.folder / "foreign.safetensors"
    foreign.write_text("mine")
    write(place)
    assert foreign.read_text() == "mine"


def test_remains_of_a_killed_process_go_after_a_day(place: Place) -> None:
    place.folder.mkdir()
    young, old = place.folder / f"{PARTIAL}young", place.folder / f"{PARTIAL}old"
    young.write_text("")
    old.write_text("")
    os.utime(old, (0, 0))
    write(place)
    assert young.exists()
    assert not old.exists()


def test_the_switch_is_on_unless_it_says_off() -> None:
    assert [switched_off({}), switched_off({"FORERUN_PACKED": "on"}), switched_off({"FORERUN_PACKED": "off"})] == [
        False,
        False,
        True,
    ]
    with pytest.raises(UnsupportedOption, match="FORERUN_PACKED=maybe is unknown; known: on, off"):
        switched_off({"FORERUN_PACKED": "maybe"})


def test_the_folder_lies_in_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORERUN_CACHE", "/somewhere")
    assert weights_folder() == Path("/somewhere/weights")
    assert module.LEAST == 16 << 20


def test_what_is_kept_is_counted(place: Place) -> None:
    assert kept_bytes(place.folder) == 0
    write(place)
    assert kept_bytes(place.folder) == place.file.stat().st_size
