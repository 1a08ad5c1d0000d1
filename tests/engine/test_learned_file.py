from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, final

import pytest

from forerun.core.identity import Identity
from forerun.core.learned import Learned
from forerun.engine.learned_file import FORMAT, MOST_BYTES, MOST_FILES, LearnedFile, owner_of, switched_off
from forerun.errors import UnsupportedOption
from forerun.models.packed.runner import HFRunner
from forerun.testing import tiny_model

NOTHING_ELSE = f'{{"forerun_learned": {FORMAT}}}'
OWNER = {"model": {"weights": "a" * 16}, "threads": 2}


@final
class Count(Learned):
    def __init__(self, value: Any = 0) -> None:
        self.value = value

    def as_data(self) -> Any:
        return self.value

    def recall(self, data: Any) -> None:
        if not isinstance(data, int):
            raise ValueError(f"no count: {data}")
        self.value = data


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FORERUN_CACHE", str(tmp_path))
    return tmp_path


def file_of(value: Any = 0, owner: Any = OWNER, name: str = "tiny") -> tuple[LearnedFile, Count]:
    count = Count(value)
    return LearnedFile(name, owner, {"count": count}), count


def test_the_next_start_goes_on_where_this_one_ended(cache: Path) -> None:
    written, _ = file_of(7)
    assert not written.recall()
    written.write()
    again, count = file_of()
    assert again.recall()
    assert count.value == 7
    assert again.path.parent == cache / "learned"


@pytest.mark.parametrize(
    "owner", [{**OWNER, "threads": 1}, {**OWNER, "model": {"weights": "b" * 16}}, {**OWNER, "method": "other"}]
)
def test_another_model_machine_or_method_has_a_file_of_its_own(owner: Any) -> None:
    file_of(7)[0].write()
    other, count = file_of(owner=owner)
    assert not other.recall()
    assert count.value == 0


def test_a_file_that_was_put_in_anothers_place_is_not_taken() -> None:
    mine, other = file_of(7)[0], file_of(owner={**OWNER, "threads": 1})[0]
    mine.write()
    mine.path.rename(other.path)
    assert not other.recall()


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "{}", NOTHING_ELSE, "\x00\xff", "x" * (MOST_BYTES + 5)],
)
def test_a_damaged_file_is_told_of_in_a_line_and_written_anew(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    file, count = file_of(7)
    file.write()
    damaged = json.dumps({"forerun_learned": FORMAT, "owner": OWNER}) if text == NOTHING_ELSE else text
    file.path.write_bytes(damaged.encode("latin-1"))
    count.value = 3
    assert not file.recall()
    told = capsys.readouterr().err
    assert (count.value, told.count("\n")) == (3, 1)
    assert f"{file.path} is damaged" in told
    file.write()
    assert file_of()[0].recall()


def test_contents_that_were_changed_are_not_taken(capsys: pytest.CaptureFixture[str]) -> None:
    file, count = file_of(7)
    file.write()
    file.path.write_text(file.path.read_text().replace('"count": 7', '"count": 9'))
    assert not file.recall()
    assert "its contents were changed" in capsys.readouterr().err
    assert count.value == 7


def test_what_its_owner_can_not_read_is_damage(capsys: pytest.CaptureFixture[str]) -> None:
    file_of("seven")[0].write()
    assert not file_of()[0].recall()
    assert "no count: seven" in capsys.readouterr().err


def test_a_file_of_another_version_is_left_out_silently(capsys: pytest.CaptureFixture[str]) -> None:
    file, count = file_of(7)
    file.write()
    file.path.write_text(
        file.path.read_text().replace(f'"forerun_learned": {FORMAT}', f'"forerun_learned": {FORMAT + 1}')
    )
    count.value = 0
    assert not file.recall()
    assert (count.value, capsys.readouterr().err) == (0, "")


def test_a_cache_that_can_not_be_written_is_told_of_once(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (cache / "learned").write_text("no folder")
    file, _ = file_of(7)
    file.write()
    file.write()
    assert capsys.readouterr().err.count("can't be written") == 1
    assert not file.recall()


def test_requests_that_end_write_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("forerun.engine.learned_file.monotonic", lambda: now[0])
    file, count = file_of(1)
    for seconds, value, kept in [(0, 1, 1), (1, 2, 1), (28, 3, 1), (2, 4, 4)]:
        now[0] += seconds
        count.value = value
        file.request_ended()
        other, read = file_of()
        other.recall()
        assert read.value == kept


def test_it_is_written_when_the_engine_is_gone() -> None:
    class Engine: ...

    engine = Engine()
    file, _ = file_of(7)
    file.write_at_the_end_of(engine)
    del engine
    assert file_of()[0].recall()


def test_it_is_written_when_python_ends(cache: Path) -> None:
    code = (
        "import sys; sys.path.insert(0, 'tests/engine')\n"
        "from test_learned_file import *\n"
        "file, _ = file_of(7)\n"
        "file.write_at_the_end_of(pytest)\n"
    )
    here = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", code], check=True, cwd=here, env={**os.environ, "FORERUN_CACHE": str(cache)})
    assert file_of()[0].recall()


def test_of_many_that_write_at_once_each_reader_finds_a_whole_file(capsys: pytest.CaptureFixture[str]) -> None:
    """Each with an object of its own, as processes have."""

    def work(value: int) -> bool:
        file, _ = file_of(value)
        for _ in range(20):
            file.write()
            if not file_of()[0].recall():
                return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))
    assert capsys.readouterr().err == ""
    assert [path.suffix for path in file_of()[0].path.parent.iterdir()] == [".json"]


def test_the_oldest_files_go(cache: Path) -> None:
    folder = cache / "learned"
    folder.mkdir()
    for number in range(MOST_FILES + 3):
        (folder / f"{number}.json").write_text("{}")
        os.utime(folder / f"{number}.json", (number, number))
    file, _ = file_of(7)
    file.write()
    left = {path.name for path in folder.iterdir()}
    assert len(left) == MOST_FILES
    assert file.path.name in left
    assert not {"0.json", "3.json"} & left


@pytest.mark.parametrize("name", ["../../etc/passwd", "", "a b:c", "x" * 400])
def test_a_model_of_any_name_has_a_file_in_the_folder(name: str, cache: Path) -> None:
    file, _ = file_of(7, name=name)
    file.write()
    assert file.path.parent == cache / "learned"
    assert file.path.exists()


def test_what_is_learnt_belongs_to_model_form_machine_and_method() -> None:
    runner = HFRunner(tiny_model("llama"))
    identity = Identity("llama", 4, 32, 97, "0" * 16)
    owner = owner_of(runner, identity, "suffix")
    assert owner["model"]["weights"] == "0" * 16
    assert owner != owner_of(runner, identity, "suffix draft_model mine")
    assert {"dtype", "kernels", "hardware", "cores", "threads"} <= owner.keys()


def test_the_switch_is_on_or_off() -> None:
    assert [switched_off({}), switched_off({"FORERUN_LEARNED": "on"}), switched_off({"FORERUN_LEARNED": "off"})] == [
        False,
        False,
        True,
    ]
    with pytest.raises(UnsupportedOption, match="FORERUN_LEARNED=maybe is unknown; known: on, off"):
        switched_off({"FORERUN_LEARNED": "maybe"})
