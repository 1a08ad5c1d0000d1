from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from forerun.errors import InvalidModelFile, ModelNotFound
from forerun.models.files import saved
from forerun.models.files.saved import Kind, read_saved, write_saved

KIND = Kind("thing", "one")
TENSORS = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(1)}


def read(directory: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    with read_saved(KIND, directory) as found:
        return found


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    write_saved(KIND, tmp_path / "deep" / "thing", {**TENSORS, "c": TENSORS["a"].T}, {"size": 3})

    about, tensors = read(tmp_path / "deep" / "thing")

    assert about == {"format": "forerun thing", "version": 1, "size": 3}
    assert torch.equal(tensors["a"], TENSORS["a"])
    assert torch.equal(tensors["c"], TENSORS["a"].T)
    assert sorted(file.name for file in (tmp_path / "deep" / "thing").iterdir()) == ["one.json", "one.safetensors"]
    assert (tmp_path / "deep" / "thing").stat().st_mode & 0o777 == 0o755


def test_what_is_there_is_not_overwritten(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is there already; name another directory"):
        write_saved(KIND, tmp_path, TENSORS, {})


def test_a_failure_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(saved, "save_file", full)
    with pytest.raises(ValueError, match=r"can't write the thing to .*: no space left"):
        write_saved(KIND, tmp_path / "thing", TENSORS, {})
    assert list(tmp_path.iterdir()) == []


def test_a_missing_one_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"no thing at .*: there is no one.json"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "another"}, "format 'another', version 1; this release reads 'forerun thing', version 1"),
        ({"version": 9}, "format 'forerun thing', version 9; this release reads"),
    ],
)
def test_another_kind_or_version_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    write_saved(KIND, tmp_path / "thing", TENSORS, {})
    file = tmp_path / "thing" / "one.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))

    with pytest.raises(InvalidModelFile, match=message):
        read(tmp_path / "thing")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b"\xff"])
def test_a_broken_description_is_refused(tmp_path: Path, content: bytes) -> None:
    write_saved(KIND, tmp_path / "thing", TENSORS, {})
    (tmp_path / "thing" / "one.json").write_bytes(content)

    with pytest.raises(InvalidModelFile, match="holds no thing that can be read"):
        read(tmp_path / "thing")


def test_truncated_and_missing_weights_are_refused(tmp_path: Path) -> None:
    write_saved(KIND, tmp_path / "thing", TENSORS, {})
    weights = tmp_path / "thing" / "one.safetensors"
    weights.write_bytes(weights.read_bytes()[:-5])
    with pytest.raises(InvalidModelFile, match="holds no thing that can be read"):
        read(tmp_path / "thing")
    weights.unlink()
    with pytest.raises(InvalidModelFile, match="holds no thing that can be read"):
        read(tmp_path / "thing")


def test_what_the_reader_can_not_use_is_refused_too(tmp_path: Path) -> None:
    write_saved(KIND, tmp_path / "thing", TENSORS, {})

    reading = read_saved(KIND, tmp_path / "thing")
    with pytest.raises(InvalidModelFile, match="that can be read: 'size'"), reading as (about, _):
        about["size"]
