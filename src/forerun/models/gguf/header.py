"""What a GGUF file says before its weights: keys, tensor names, and the frequency factors that it keeps as tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import InvalidModelFile, UnsupportedModel, reason_of

# Rotary frequencies are divided by these: always, in long texts, in short ones.
ROPE_FACTORS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")


@dataclass(frozen=True, slots=True)
class Header:
    """keys are all of the file's, factors the values of those ROPE_FACTORS that it holds."""

    name: str
    architecture: str
    keys: Mapping[str, Any]
    tensors: tuple[str, ...]
    factors: Mapping[str, list[float]]

    @property
    def own(self) -> dict[str, Any]:
        """The keys of its architecture, without the prefix."""
        prefix = f"{self.architecture}."
        return {key.removeprefix(prefix): value for key, value in self.keys.items() if key.startswith(prefix)}

    def refuse(self, key: str, reason: str) -> UnsupportedModel:
        """The error for a key that would change the result and can't be applied."""
        return UnsupportedModel(f"{self.name} sets {key} to {self.keys[key]!r}: {reason}")

    def refuse_own(self, key: str, reason: str) -> UnsupportedModel:
        return self.refuse(f"{self.architecture}.{key}", reason)


def read_header(file: Path) -> Header:
    """Raises InvalidModelFile on a file that can't be read, UnsupportedModel on one that holds no language model."""
    import gguf

    try:
        reader = gguf.GGUFReader(file)
        keys = {name: field.contents() for name, field in reader.fields.items() if not name.startswith("GGUF.")}
        architecture = str(keys["general.architecture"])
        tensors = {tensor.name: tensor for tensor in reader.tensors}
        factors = {
            name: gguf.quants.dequantize(tensors[name].data, tensors[name].tensor_type).reshape(-1).tolist()
            for name in ROPE_FACTORS
            if name in tensors
        }
    except MemoryError:
        raise
    except Exception as error:
        raise InvalidModelFile(
            f"{file.name} can't be read; it is corrupt or truncated, download it again "
            f"({type(error).__name__}: {reason_of(error)})"
        ) from error
    header = Header(file.name, architecture, keys, tuple(tensors), factors)
    kind = keys.get("general.type", "model")
    if kind != "model":
        raise header.refuse("general.type", "forerun loads whole language models; name the model's own file")
    return header
