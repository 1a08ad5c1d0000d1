"""Files of tensors that are mapped: what is written comes back, and anything else is noticed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from forerun.models.lean.mapped import file as module
from forerun.models.lean.mapped.file import ALIGNED, CHUNK, BadFile, open_file, read_about, write_file

ABOUT = {"name": "tiny", "numbers": [1, 2.5, None]}


def some() -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [
        torch.randint(256, (3, 5, 7), generator=generator, dtype=torch.uint8),
        torch.randn(33, generator=generator),
        torch.randn(40000, generator=generator).bfloat16().view(200, 200),
        torch.tensor(2.5),
        torch.randn(6, 4, generator=generator).T,
        torch.empty(0, 3),
    ]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_file(tmp_path / "w.safetensors", ABOUT, some())
    return tmp_path / "w.safetensors"


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def test_tensors_come_back_as_they_were(path: Path) -> None:
    found = open_file(path)
    assert found.about == ABOUT
    assert [tensor.dtype for tensor in found.tensors] == [tensor.dtype for tensor in some()]
    assert all(torch.equal(mine, its) for mine, its in zip(found.tensors, some(), strict=True))


def test_every_tensor_lies_where_native_loads_may_read(path: Path) -> None:
    assert [tensor.data_ptr() % ALIGNED for tensor in open_file(path).tensors] == [0] * len(some())


def test_blocks_that_end_within_a_tensor_are_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK", 2 * CHUNK)
    large = torch.arange(100_000)
    write_file(tmp_path / "w", ABOUT, [some()[0], large, some()[1]])
    first, second, third = open_file(tmp_path / "w").tensors
    assert torch.equal(second, large)
    assert torch.equal(first, some()[0])
    assert torch.equal(third, some()[1])


def test_it_is_a_safetensors_file(path: Path) -> None:
    with safe_open(path, "pt") as opened:
        assert opened.get_tensor("data").dtype == torch.uint8
        assert "digest" in opened.metadata()


def test_what_is_written_into_a_tensor_stays_in_the_process(path: Path) -> None:
    open_file(path).tensors[1].zero_()
    assert torch.equal(open_file(path).tensors[1], some()[1])


def test_another_process_shares_the_pages(tmp_path: Path) -> None:
    if not Path("/proc/self/smaps").exists():
        pytest.skip("the system doesn't tell what processes share")
    path = tmp_path / "w.safetensors"
    write_file(path, ABOUT, [torch.ones(1 << 20)])
    held = open_file(path)
    other = subprocess.Popen(
        [sys.executable, "-c", f"import mmap; f = open({str(path)!r}, 'rb'); m = mmap.mmap(f.fileno(), 0, access=1)\n"
         "sum(m[::4096]); print('ready', flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
        assert held.tensors[0].sum() == 1 << 20
        assert shared(path) > 3 << 20
    finally:
        other.communicate("\n")


def shared(path: Path) -> int:
    """Bytes of the mapped file that others map too."""
    count, own = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split()[0]:
            own = line.endswith(str(path))
        elif own and line.startswith("Shared_"):
            count += int(line.split()[1]) << 10
    return count


def test_a_file_that_is_replaced_stays_with_those_who_mapped_it(path: Path) -> None:
    held = open_file(path).tensors[1]
    write_file(path, ABOUT, [torch.zeros(33)])
    assert torch.equal(held, some()[1])
    assert torch.equal(open_file(path).tensors[0], torch.zeros(33))


@pytest.mark.parametrize("place", [CHUNK, CHUNK + 200, -1])
def test_a_changed_byte_is_noticed(path: Path, place: int) -> None:
    flip(path, place)
    with pytest.raises(BadFile, match="its bytes are not those that were written"):
        open_file(path)


def test_a_changed_word_of_what_is_told_is_noticed(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data.replace(b"tiny", b"tidy"))
    with pytest.raises(BadFile, match="its bytes are not those"):
        open_file(path)


@pytest.mark.parametrize("place", [0, 3, 9, 40])
def test_a_damaged_header_is_noticed(path: Path, place: int) -> None:
    flip(path, place)
    with pytest.raises(BadFile):
        open_file(path)


@pytest.mark.parametrize("length", [0, 5, 8, 100, CHUNK, CHUNK + 10, 2 * CHUNK, -1])
def test_a_file_that_is_cut_short_is_noticed(path: Path, length: int) -> None:
    os.truncate(path, length if length >= 0 else path.stat().st_size - 1)
    with pytest.raises(BadFile):
        open_file(path)


def test_a_file_with_more_bytes_is_noticed(path: Path) -> None:
    with path.open("ab") as opened:
        opened.write(b"more")
    with pytest.raises(BadFile, match="bytes and should have"):
        open_file(path)


def test_zeros_in_the_place_of_a_page_are_noticed(tmp_path: Path) -> None:
    path = tmp_path / "w"
    write_file(path, ABOUT, [torch.full((1 << 16,), 3.0)])
    with path.open("r+b") as opened:
        opened.seek(2 * CHUNK)
        opened.write(bytes(4096))
    with pytest.raises(BadFile):
        open_file(path)


@pytest.mark.parametrize("place", [[0, "uint8", [1 << 20]], [0, "uint9", [1]], [0, "float32"], ["0", "uint8", [1]]])
def test_a_tensor_that_is_not_there_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: object) -> None:
    dumps = module.json.dumps
    monkeypatch.setattr(
        module.json,
        "dumps",
        lambda told, **options: dumps({**told, "tensors": [place]} if "tensors" in told else told, **options),
    )
    write_file(tmp_path / "w", ABOUT, [torch.ones(3)])
    with pytest.raises(BadFile, match="names a tensor that isn't there"):
        open_file(tmp_path / "w")


def test_a_foreign_safetensors_file_is_noticed(tmp_path: Path) -> None:
    save_file({"data": torch.ones(5)}, tmp_path / "w", {"digest": "0"})
    with pytest.raises(BadFile, match="says nothing of packed weights"):
        open_file(tmp_path / "w")


def test_text_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "w").write_text("not weights at all, but a text of some length")
    with pytest.raises(BadFile, match="no safetensors file"):
        open_file(tmp_path / "w")


def test_another_version_is_noticed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FORMAT", "forerun packed weights 2")
    with pytest.raises(BadFile, match="another format than"):
        open_file(path)


def test_without_a_check_the_bytes_are_not_read(path: Path) -> None:
    flip(path, -1)
    assert open_file(path, check=False).about == ABOUT


def test_a_missing_file_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        open_file(tmp_path / "w")


def test_what_is_told_can_be_read_alone(path: Path) -> None:
    assert read_about(path) == ABOUT


def test_a_failure_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OSError, match="No space left"):
        write_file(tmp_path / "w", ABOUT, some())
    assert list(tmp_path.iterdir()) == []
