"""The files of the benchmarked model for other engines: its GGUF file, its directory of safetensors, or both."""

from __future__ import annotations

from ..models.files.locate import locate
from ..models.gguf.convert import converted
from ..models.loading.load import dtype_of


def peer_models(model: str, dtype: str) -> dict[str, str]:
    """Paths by format. A GGUF file is unpacked once for engines that read directories, the same copy that forerun runs."""
    wanted = dtype_of(dtype)
    assert wanted is not None
    path = locate(model).resolve()
    if path.is_dir():
        return {"hf": str(path)}
    return {"gguf": str(path), "hf": str(converted(path, wanted))}
