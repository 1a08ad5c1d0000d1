"""A file of tensors that processes share: mapped, not read, and checked from end to end whenever it is opened.

It is a safetensors file with one tensor of bytes, since the format itself aligns to 8 and native loads need 64. Where each
tensor lies, and what the file was made of, its metadata say, with a digest of them and of all bytes. Checking costs a few
milliseconds for 100 MB, and brings the pages in that a forward is about to read.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, final

import numpy as np
import torch
from torch import Tensor

FORMAT = "forerun packed weights 1"
PARTIAL = ".partial-"
ALIGNED = 64
CHUNK = 1 << 16  # bytes that are summed up together
BLOCK = 8 << 20  # bytes written at once, so that the system may keep them on large pages
DIGITS = 64
LONGEST = 100 << 20  # bytes of a safetensors header


class BadFile(Exception):
    """The file is none of ours, is cut short, or holds other bytes than were written."""


@final
@dataclass(frozen=True, slots=True)
class Contents:
    """about is what the writer said of the tensors."""

    about: dict[str, Any]
    tensors: list[Tensor]


def write_file(path: Path, about: Mapping[str, Any], tensors: Sequence[Tensor]) -> None:
    """Written under another name and moved when complete; a file that is there stays with those who mapped it.

    Raises OSError where it can't be written.
    """
    places: list[tuple[int, str, list[int]]] = []
    end = 0
    for tensor in tensors:
        places.append((end, str(tensor.dtype).removeprefix("torch."), list(tensor.shape)))
        end += -(-tensor.nbytes // ALIGNED) * ALIGNED
    end = -(-end // CHUNK) * CHUNK
    text = json.dumps({"format": FORMAT, "about": about, "tensors": places}, sort_keys=True)
    with tempfile.NamedTemporaryFile(prefix=PARTIAL, dir=path.parent, delete=False) as file:
        try:
            head = _header(text, "0" * DIGITS, end)
            writer = _Writer(file, head)
            for (place, _, _), tensor in zip(places, tensors, strict=True):
                writer.add(len(head) + place, tensor.contiguous().flatten().view(torch.uint8))
            digest = hashlib.sha256(text.encode() + writer.finish(len(head) + end)[len(head) // CHUNK * 8 :])
            file.seek(0)
            file.write(_header(text, digest.hexdigest(), end))
            file.close()
            os.replace(file.name, path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise


def read_about(path: Path) -> dict[str, Any]:
    """What the writer said, unchecked. Raises BadFile, and OSError where there is none."""
    with path.open("rb") as file:
        return dict(_read_header(file)[0]["about"])


def open_file(path: Path, check: bool = True) -> Contents:
    """Map a file; the tensors share its pages with every process that does, until one of them writes into them.

    check: read all of it and compare with the digest. Raises BadFile, and OSError where there is none.
    """
    with path.open("rb") as file:
        told, text, digest, start, end = _read_header(file)
        if os.fstat(file.fileno()).st_size != start + end:
            raise BadFile(f"it has {os.fstat(file.fileno()).st_size} bytes and should have {start + end}")
        pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    if large := getattr(mmap, "MADV_HUGEPAGE", None):
        with suppress(OSError):  # a wish only: where it isn't granted, pages stay small
            pages.madvise(large)
    data = torch.from_numpy(np.frombuffer(pages, np.uint8))[start:]
    if check and hashlib.sha256(text.encode() + _sums(data)).hexdigest() != digest:
        raise BadFile("its bytes are not those that were written")
    try:
        return Contents(told["about"], [_tensor(data, *place) for place in told["tensors"]])
    except (RuntimeError, AttributeError, TypeError, ValueError) as error:
        raise BadFile(f"it names a tensor that isn't there ({error})") from error


def _header(text: str, digest: str, size: int) -> bytes:
    metadata = {"packed": text, "digest": digest}
    data = {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}
    head = json.dumps({"__metadata__": metadata, "data": data}).encode()
    length = -(-(8 + len(head)) // CHUNK) * CHUNK - 8
    return length.to_bytes(8, "little") + head.ljust(length)


def _read_header(file: BinaryIO) -> tuple[dict[str, Any], str, str, int, int]:
    """What is told, as values and as text, its digest, and where the bytes begin and how many there are."""
    length = int.from_bytes(file.read(8), "little")
    size = os.fstat(file.fileno()).st_size
    if not 0 < length <= min(size - 8, LONGEST):
        raise BadFile("it is cut short, or no safetensors file")
    try:
        head = json.loads(file.read(length))
        text, digest = head["__metadata__"]["packed"], head["__metadata__"]["digest"]
        told = json.loads(text)
        end = int(head["data"]["data_offsets"][1])
        if told["format"] != FORMAT or end % CHUNK or (8 + length) % CHUNK:
            raise BadFile(f"it is of another format than {FORMAT!r}")
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise BadFile(f"its header says nothing of packed weights ({type(error).__name__})") from error
    return told, str(text), str(digest), 8 + length, end


def _tensor(data: Tensor, place: int, dtype: str, shape: list[int]) -> Tensor:
    kind: torch.dtype = getattr(torch, dtype)
    count = kind.itemsize * int(np.prod(shape, dtype=np.int64))
    return data[place : place + count].view(kind).view(shape)


def _sums(data: Tensor) -> bytes:
    """The sum of the words of each chunk: it tells accidents, not intentions, as fast as memory is read."""
    return data.view(torch.int64).view(-1, CHUNK // 8).sum(1).numpy().tobytes()


@final
class _Writer:
    """Gathers bytes in blocks, so that writes are large and begin where large pages do."""

    def __init__(self, file: Any, head: bytes) -> None:
        self._file = file
        self._block = torch.zeros(BLOCK, dtype=torch.uint8)
        self._filled = self._written = 0
        self._sums: list[bytes] = []
        self.add(0, torch.frombuffer(bytearray(head), dtype=torch.uint8))

    def add(self, place: int, data: Tensor) -> None:
        """Bytes that begin at this place of the file; what lies before them and after the last ones is zero."""
        self._zeros(place - self._written - self._filled)
        while len(data):
            part, data = data.split([count := min(len(data), BLOCK - self._filled), len(data) - count])
            self._block[self._filled : self._filled + count] = part
            self._advance(count)

    def finish(self, size: int) -> bytes:
        """The sums of all chunks of the file, of so many bytes."""
        self._zeros(size - self._written - self._filled)
        self._flush()
        return b"".join(self._sums)

    def _zeros(self, count: int) -> None:
        while count:
            part = min(count, BLOCK - self._filled)
            self._block[self._filled : self._filled + part] = 0
            self._advance(part)
            count -= part

    def _advance(self, count: int) -> None:
        self._filled += count
        if self._filled == BLOCK:
            self._flush()

    def _flush(self) -> None:
        part = self._block[: self._filled]
        if len(part):
            self._file.write(part.numpy().data)
            self._sums.append(_sums(part))
        self._written += self._filled
        self._filled = 0
