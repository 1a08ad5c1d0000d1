from pathlib import Path

import pytest

from forerun.bench import peer_models as module
from forerun.bench.peer_models import peer_models
from forerun.errors import ModelNotFound, UnsupportedOption
from forerun.testing import save_tiny


def test_a_directory_serves_those_who_read_directories(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "tiny")
    assert peer_models(str(folder), "float32") == {"hf": str(folder.resolve())}


def test_a_gguf_file_serves_both_once_it_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(b"GGUF")
    monkeypatch.setattr(module, "converted", lambda path, dtype: Path(f"/cache/{path.stem}-{dtype}"))
    assert peer_models(str(file), "bfloat16") == {"gguf": str(file), "hf": "/cache/m-torch.bfloat16"}


def test_an_unknown_number_format_is_refused_for_directories_too(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedOption, match="unknown dtype int3"):
        peer_models(str(save_tiny(tmp_path / "tiny")), "int3")


def test_a_model_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound):
        peer_models(str(tmp_path / "none"), "float32")
