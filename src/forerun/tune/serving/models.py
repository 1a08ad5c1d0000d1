"""A model in the form that an engine reads."""

from __future__ import annotations

from pathlib import Path

from ...bench.peer_models import peer_models
from ...errors import UnsupportedOption
from ...models.files.locate import BUNDLED, locate


def model_for(form: str, model: str, dtype: str | None) -> str:
    """form: hf or gguf. A name of the hub's stays what it is, for the engine fetches it. Raises UnsupportedOption."""
    path = Path(model).expanduser()
    if form == "gguf":
        found = locate(model) if model in BUNDLED or path.suffix == ".gguf" else path
        if not found.is_file():
            raise UnsupportedOption(f"a GGUF file is needed here, and {model} is none that exists")
        return str(found.resolve())
    if model not in BUNDLED and not path.exists():
        return model
    return peer_models(model, dtype or "bfloat16")["hf"]
