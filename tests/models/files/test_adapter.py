"""An exit adapter on disk: whole or not at all, and only for its own base."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from forerun.errors import InvalidModelFile, ModelNotFound
from forerun.models.files.adapter import AdapterFile, AdapterShape, read_adapter, write_adapter
from forerun.testing import tiny_adapter, tiny_model


@pytest.fixture
def file() -> AdapterFile:
    return tiny_adapter(tiny_model("llama"), 2, "state+token")


def test_what_is_written_is_read(file: AdapterFile, tmp_path: Path) -> None:
    write_adapter(replace(file, trained={"steps": 3}), tmp_path / "deep" / "adapter")
    read = read_adapter(tmp_path / "deep" / "adapter")
    assert (read.shape, read.base, read.trained) == (file.shape, file.base, {"steps": 3})
    assert read.weights.keys() == file.weights.keys()
    assert all(torch.equal(read.weights[name], value) for name, value in file.weights.items())
    assert torch.equal(read.ranking, file.ranking)
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["adapter"]


def test_a_directory_that_is_there_is_left_alone(file: AdapterFile, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is there already; name another directory"):
        write_adapter(file, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_nothing(file: AdapterFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given: Any, **options: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(ValueError, match=r"can't write the .*adapter to .*No space left on device"):
        write_adapter(file, tmp_path / "adapter")
    assert list(tmp_path.iterdir()) == []


def test_where_there_is_none_it_says_so(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "none"):
        with pytest.raises(ModelNotFound, match=r"no exit adapter at .*: there is no adapter.json"):
            read_adapter(place)


def changed(place: Path, **values: Any) -> None:
    about = json.loads((place / "adapter.json").read_text())
    (place / "adapter.json").write_text(json.dumps({**about, **values}))


@pytest.mark.parametrize(
    "values",
    [
        {"format": "something else"},
        {"version": 99},
        {"shape": {"exit_layer": 2}},
        {"shape": None},
        {"base": {"family": "llama"}},
        {"shape": {"inputs": "tokens"}},
    ],
)
def test_a_file_that_is_none_of_ours_is_refused(file: AdapterFile, tmp_path: Path, values: dict[str, Any]) -> None:
    write_adapter(file, tmp_path / "adapter")
    changed(tmp_path / "adapter", **values)
    with pytest.raises(InvalidModelFile, match="adapter holds no exit adapter that can be read: "):
        read_adapter(tmp_path / "adapter")


@pytest.mark.parametrize("damage", ["truncated", "empty", "missing", "no json", "other tensors"])
def test_damage_is_refused(file: AdapterFile, tmp_path: Path, damage: str) -> None:
    write_adapter(file, tmp_path / "adapter")
    weights = tmp_path / "adapter" / "adapter.safetensors"
    if damage == "missing":
        weights.unlink()
    elif damage == "no json":
        (tmp_path / "adapter" / "adapter.json").write_text('{"format": ')
    elif damage == "other tensors":
        from safetensors.torch import save_file

        save_file({"x": torch.zeros(2)}, weights)
    else:
        weights.write_bytes(weights.read_bytes()[: 1000 if damage == "truncated" else 0])
    with pytest.raises(InvalidModelFile, match="holds no exit adapter that can be read"):
        read_adapter(tmp_path / "adapter")


@pytest.mark.parametrize(
    ("family", "seed", "field"), [("llama", 1, "weights"), ("mistral", 0, "family")], ids=["weights", "family"]
)
def test_another_base_is_refused(file: AdapterFile, family: str, seed: int, field: str) -> None:
    other = tiny_adapter(tiny_model(family, seed), 2, "state+token").base
    with pytest.raises(ValueError, match=rf"the exit adapter was trained for another model: its base's {field} is "):
        file.check_base(other)
    file.check_base(replace(file.base, vocabulary="0" * 16))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [({"inputs": "tokens"}, "inputs must be one of state, state"), ({"depth": 0}, "depth must be at least 1, got 0")],
)
def test_a_shape_that_makes_no_sense_is_refused(file: AdapterFile, changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        replace(file.shape, **changes)


@pytest.mark.parametrize(("inputs", "last"), [("state", 3), ("state+token", 4)])
def test_an_exit_must_be_one_of_the_models(file: AdapterFile, inputs: str, last: int) -> None:
    def shape(exit_layer: int) -> AdapterShape:
        return replace(file.shape, inputs=inputs, exit_layer=exit_layer)

    shape(1).check(4)
    shape(last).check(4)
    for exit_layer in (0, last + 1, -1):
        with pytest.raises(ValueError, match=rf"the exit layer must be in 1..{last} .*, got {exit_layer}"):
            shape(exit_layer).check(4)
