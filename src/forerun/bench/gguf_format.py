"""How a GGUF file holds its weights, for the tables that name it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from ..errors import InvalidModelFile, reason_of


def gguf_format(file: Path) -> str:
    """The types of its tensors, those of most bytes first, such as "Q4_1, Q8_0, F32". Raises InvalidModelFile."""
    import gguf

    held: Counter[str] = Counter()
    try:
        for tensor in gguf.GGUFReader(file).tensors:
            held[tensor.tensor_type.name] += int(tensor.n_bytes)
    except (OSError, ValueError, IndexError) as error:
        raise InvalidModelFile(f"{file.name} can't be read as a GGUF file: {reason_of(error)}") from error
    return ", ".join(name for name, _ in held.most_common())
