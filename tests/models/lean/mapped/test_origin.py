"""What packed weights were made of: any change of it is told."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch

from forerun.models.lean.mapped import origin as module
from forerun.models.lean.mapped.origin import code, files_of, origin_of
from forerun.testing import save_tiny

from ...gguf.tiny_gguf import write_gguf


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return save_tiny(tmp_path / "tiny")


def test_an_origin_is_json_and_always_the_same(directory: Path) -> None:
    told = origin_of(directory, "int4", None)
    assert json.loads(json.dumps(told)) == told == origin_of(directory, "int4", None)
    assert told["model"] == str(directory)
    assert [name for name, *_ in told["files"]] == ["config.json", "model.safetensors"]


def test_forms_and_types_are_told_apart(directory: Path) -> None:
    told = [
        origin_of(directory, weights, dtype) for weights, dtype in (("", None), ("int4", None), ("", torch.bfloat16))
    ]
    assert told[0] != told[1]
    assert (told[0]["dtype"], told[2]["dtype"]) == ("", "bfloat16")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_changed_file_is_told_even_if_its_size_and_time_are_the_same(directory: Path, name: str) -> None:
    before, file = origin_of(directory, "int4", None), directory / name
    times, data = file.stat(), bytearray(file.read_bytes())
    data[-3] ^= 1
    file.write_bytes(data)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert origin_of(directory, "int4", None) != before


def test_a_touched_file_is_told(directory: Path) -> None:
    before = origin_of(directory, "int4", None)
    os.utime(directory / "model.safetensors", ns=(0, 5))
    assert origin_of(directory, "int4", None) != before


def test_another_shard_is_told(directory: Path) -> None:
    before = origin_of(directory, "int4", None)
    (directory / "more.safetensors").write_bytes((directory / "model.safetensors").read_bytes())
    assert origin_of(directory, "int4", None) != before


def test_a_tokenizer_is_none_of_it(directory: Path) -> None:
    before = origin_of(directory, "int4", None)
    (directory / "tokenizer.json").write_text("{}")
    assert origin_of(directory, "int4", None) == before


def test_a_link_is_what_it_leads_to(directory: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(directory)
    assert origin_of(tmp_path / "link", "int4", None) == origin_of(directory, "int4", None)


def test_a_gguf_file_is_its_own_origin(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "tiny.gguf")
    assert files_of(file) == [file]
    assert origin_of(file, "int4", None)["files"][0][:2] == ["tiny.gguf", file.stat().st_size]


def test_code_is_told_by_its_text_and_its_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = code()
    assert before == code()
    assert len(before) == 16
    monkeypatch.setattr(module, "version", lambda name: "0")
    without_versions = code()
    assert without_versions != before

    room = tmp_path / "room"
    room.mkdir()
    (room / "pack.py").write_text("LANES = 16\n")
    monkeypatch.setattr(module.lean, "__path__", [str(room)])
    first = code()
    (room / "pack.py").write_text("LANES = 8\n")
    assert len({without_versions, first, code()}) == 3
