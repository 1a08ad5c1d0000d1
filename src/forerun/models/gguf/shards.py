"""A GGUF model in several files, NAME-00001-of-0000N.gguf and so on: found by the first one's name, read or joined."""

from __future__ import annotations

import re
from pathlib import Path

from ...errors import InvalidModelFile, ModelNotFound

_NUMBERED = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")


def shards_of(file: Path) -> tuple[Path, ...]:
    """All files of the model that file begins; file alone where it is not numbered.

    Raises ModelNotFound where file is not the first, or others are missing.
    """
    numbered = _NUMBERED.fullmatch(file.name)
    if numbered is None:
        return (file,)
    stem, count = numbered["stem"], int(numbered["count"])
    names = [f"{stem}-{number:05}-of-{count:05}.gguf" for number in range(1, count + 1)]
    if int(numbered["number"]) != 1:
        raise ModelNotFound(f"{file.name} is part {int(numbered['number'])} of {count}; name the first, {names[0]}")
    if missing := [name for name in names if not (file.parent / name).is_file()]:
        raise ModelNotFound(f"{file.name} is the first of {count} files, and {', '.join(missing)} is not beside it")
    return tuple(file.parent / name for name in names)


def gguf_in(directory: Path) -> Path | None:
    """The one GGUF model of a directory, None where there is none. Raises ModelNotFound where there are several."""
    found = [file for file in sorted(directory.glob("*.gguf")) if not file.name.startswith("mmproj")]
    firsts = [file for file in found if _number(file) == 1]
    if len(firsts) > 1:
        raise ModelNotFound(f"{directory} holds several models, name one: {', '.join(file.name for file in firsts)}")
    return firsts[0] if firsts else found[0] if found else None


def joined(shards: tuple[Path, ...], target: Path) -> Path:
    """One file with the first shard's keys and the tensors of all. Raises InvalidModelFile on a tensor count that is off."""
    import gguf

    readers = [gguf.GGUFReader(shard) for shard in shards]
    fields = readers[0].fields
    writer = gguf.GGUFWriter(target, str(fields["general.architecture"].contents()))
    for name, field in fields.items():
        if not name.startswith(("GGUF.", "split.", "general.architecture")):
            kind, *inner = field.types
            writer.add_key_value(name, field.contents(), kind, inner[-1] if inner else None)
    tensors = [tensor for reader in readers for tensor in reader.tensors]
    expected = fields.get("split.tensors.count")
    if expected is not None and expected.contents() != len(tensors):
        raise InvalidModelFile(
            f"{shards[0].name} and the files that belong to it hold {len(tensors)} tensors, not {expected.contents()}: they "
            "are of different models, or truncated; download them again"
        )
    for tensor in tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


def _number(file: Path) -> int:
    numbered = _NUMBERED.fullmatch(file.name)
    return 1 if numbered is None else int(numbered["number"])
