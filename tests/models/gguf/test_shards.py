"""GGUF models in several files, and directories that hold GGUF files: found, joined, or refused with the names."""

from __future__ import annotations

from pathlib import Path

import gguf
import pytest
import torch

from forerun.errors import InvalidModelFile, ModelNotFound
from forerun.models.gguf.shards import gguf_in, joined, shards_of
from forerun.models.loading.load import open_model
from forerun.models.packed.sequence import Sequence

from ..running import finish
from .tiny_gguf import END, write_gguf

IDS = [60, 25, 35, 29, 55, 1, 200, 17, 3]


def split(file: Path, folder: Path, count: int = 3) -> list[Path]:
    """A file in parts, as llama.cpp's gguf-split writes them: all keys are in the first."""
    folder.mkdir()
    reader = gguf.GGUFReader(file)
    parts = []
    for number in range(count):
        part = folder / f"big-{number + 1:05}-of-{count:05}.gguf"
        writer = gguf.GGUFWriter(part, "llama")
        if number == 0:
            for name, field in reader.fields.items():
                if not name.startswith(("GGUF.", "general.architecture")):
                    kind, *inner = field.types
                    writer.add_key_value(name, field.contents(), kind, inner[-1] if inner else None)
        writer.add_uint16("split.no", number)
        writer.add_uint16("split.count", count)
        writer.add_int32("split.tensors.count", len(reader.tensors))
        for tensor in reader.tensors[number::count]:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        parts.append(part)
    return parts


def logits(model: Path, **options: str) -> torch.Tensor:
    return finish(Sequence(open_model(model, **options).runner).forward(IDS)).logits


@pytest.mark.parametrize("options", [{"dtype": "float32"}, {"weights": "int4", "device": "cpu"}])
def test_parts_are_the_whole_by_the_first_ones_name(tmp_path: Path, options: dict[str, str]) -> None:
    file = write_gguf(tmp_path / "whole.gguf", kind="Q4_1")
    parts = split(file, tmp_path / "parts")
    assert torch.equal(logits(parts[0], **options), logits(file, **options))
    assert open_model(parts[0]).eos == {END}
    assert torch.equal(logits(tmp_path / "parts", **options), logits(file, **options))


def test_parts_are_converted_once_and_anew_when_one_changes(tmp_path: Path) -> None:
    parts = split(write_gguf(tmp_path / "whole.gguf"), tmp_path / "parts")
    before = logits(parts[0])
    other = split(write_gguf(tmp_path / "other.gguf", seed=1), tmp_path / "others")
    for part, new in zip(parts[1:], other[1:], strict=True):
        part.write_bytes(new.read_bytes())
    assert not torch.equal(logits(parts[0]), before)
    models = list((tmp_path / "cache" / "models").iterdir())
    assert len(models) == 2


def test_a_file_alone_is_its_only_part(tmp_path: Path) -> None:
    assert shards_of(tmp_path / "m.gguf") == (tmp_path / "m.gguf",)


def test_another_part_than_the_first_names_the_first(tmp_path: Path) -> None:
    parts = split(write_gguf(tmp_path / "whole.gguf"), tmp_path / "parts")
    with pytest.raises(ModelNotFound, match=r"is part 2 of 3; name the first, big-00001-of-00003\.gguf"):
        open_model(parts[1])


def test_missing_parts_are_named(tmp_path: Path) -> None:
    parts = split(write_gguf(tmp_path / "whole.gguf"), tmp_path / "parts")
    parts[1].unlink()
    with pytest.raises(ModelNotFound, match=r"first of 3 files, and big-00002-of-00003\.gguf is not beside it"):
        open_model(parts[0])


def test_parts_that_do_not_belong_together_are_told_by_their_tensors(tmp_path: Path) -> None:
    parts = split(write_gguf(tmp_path / "whole.gguf"), tmp_path / "parts")
    other = split(write_gguf(tmp_path / "other.gguf", layers=1), tmp_path / "others")
    with pytest.raises(InvalidModelFile, match=r"hold 18 tensors, not 21: they are of different models"):
        joined((parts[0], parts[1], other[2]), tmp_path / "joined.gguf")


def test_a_directory_with_one_file_is_that_model(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    file = write_gguf(folder / "tiny.gguf")
    (folder / "mmproj-tiny.gguf").write_bytes(b"GGUF")
    assert gguf_in(folder) == file
    loaded = open_model(folder)
    assert (loaded.name, loaded.eos) == ("model", {END})


def test_a_directory_with_several_lists_them(tmp_path: Path) -> None:
    for name in ("a-Q4.gguf", "b-Q8.gguf"):
        write_gguf(tmp_path / name)
    with pytest.raises(ModelNotFound, match=r"holds several models, name one: a-Q4\.gguf, b-Q8\.gguf"):
        open_model(tmp_path)


def test_a_directory_without_any_holds_none(tmp_path: Path) -> None:
    assert gguf_in(tmp_path) is None
    with pytest.raises(ModelNotFound, match=r"holds no model: it has no config\.json"):
        open_model(tmp_path)
