"""What a command is to write is tried before the work, and told by name where it fails."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from forerun.cli.output import check_file, check_folder, check_lines, write_text

from .conftest import Ran

Call = Callable[..., Ran]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "file").write_text("mine")
    return tmp_path / "file"


def test_folders_are_made_and_nothing_is_left_in_them(tmp_path: Path) -> None:
    check_file(tmp_path / "a" / "b.json")
    check_folder(tmp_path / "c" / "d")

    assert list((tmp_path / "a").iterdir()) == list((tmp_path / "c" / "d").iterdir()) == []


def test_a_file_that_is_there_is_left_alone(file: Path) -> None:
    check_file(file)

    assert file.read_text() == "mine"


def test_a_device_may_be_written() -> None:
    check_file(Path("/dev/null"))


def test_lines_are_added_to_files_alone(file: Path) -> None:
    check_lines(file)
    check_lines(file.with_name("new"))
    with pytest.raises(ValueError, match="/dev/full is no file that lines can be read from and added to"):
        check_lines(Path("/dev/full"))


@pytest.mark.parametrize("below", ["", "x", "x/y"])
def test_a_folder_that_cant_be_made_is_named(file: Path, below: str) -> None:
    with pytest.raises(OSError, match=r"file.*") as failed:
        check_folder(file / below)
    assert failed.value.filename == str(file / below)


def test_a_file_that_cant_be_written_is_named(file: Path) -> None:
    with pytest.raises(IsADirectoryError) as failed:
        check_file(file.parent)
    assert failed.value.filename == str(file.parent)
    with pytest.raises(NotADirectoryError):
        check_file(file / "x" / "y.json")


def test_a_text_gets_an_end_and_a_full_disk_a_name(tmp_path: Path) -> None:
    write_text(tmp_path / "a", "b")

    assert (tmp_path / "a").read_text() == "b\n"
    with pytest.raises(OSError, match="No space left") as failed:
        write_text(Path("/dev/full"), "b")
    assert (failed.value.errno, failed.value.filename) == (errno.ENOSPC, "/dev/full")


def commands(tiny: str, folder: Path, path: Path) -> dict[str, list[str]]:
    """Each option that names something to write, with this path."""
    prompts, suite, data = folder / "prompts.jsonl", folder / "suite.jsonl", folder / "data.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": f"say {n}"}) + "\n" for n in range(4)))
    suite.write_text(json.dumps({"question_id": 1, "category": "a", "turns": ["say"]}) + "\n")
    data.write_text(json.dumps({"text": "say it"}) + "\n")
    words = {
        "bench --json": f"bench {tiny} --suite {suite} --json {path}",
        "bench --plots": f"bench {tiny} --suite {suite} --plots {path}",
        "tune -o": f"tune {tiny} --prompts {prompts} -o {path}",
        "tune --report": f"tune {tiny} --prompts {prompts} -o {folder / 'system.json'} --report {path}",
        "design": f"design {tiny} --report {path}",
        "trace": f"trace {tiny} --prompts {prompts} --drafter lookup -o {path}",
        "train prompts": f"train prompts {tiny} -o {path} --count 1",
        "train answers": f"train answers {tiny} {prompts} -o {path}",
        "train answers --states": f"train answers {tiny} {prompts} -o {folder / 'a'} --layers 2 --states {path}",
        "train layerskip": f"train layerskip {tiny} --data {data} --output {path}",
        "train report": f"train report {tiny} --data {data} --output {path}",
        "export draft": f"export draft {tiny} --exit-layer 2 -o {path}",
    }
    return {name: line.split(" ") for name, line in words.items()}


NAMES = (
    *("bench --json", "bench --plots", "tune -o", "tune --report", "design", "trace", "train prompts", "train answers"),
    *("train answers --states", "train layerskip", "train report", "export draft"),
)


@pytest.mark.parametrize("name", NAMES)
def test_a_path_below_a_file_is_one_sentence_before_any_work(
    forerun: Call, tiny: str, tmp_path: Path, file: Path, name: str
) -> None:
    ran = forerun(*commands(tiny, tmp_path, file / "x")[name])

    assert ran.status in (1, 2), ran.err
    assert ran.out == ""
    last = ran.said.splitlines()[-1]
    assert last.startswith("forerun: ")
    assert str(file) in last
    assert file.read_text() == "mine"
