"""What lies beside a trained draft's checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from forerun.errors import InvalidModelFile
from forerun.models.files.draft import DraftFile, read_draft, write_draft

FILE = DraftFile(torch.tensor([7, 3, 5]), 2, {"steps": 9})


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    write_draft(FILE, tmp_path)
    for name in (tmp_path, str(tmp_path)):
        read = read_draft(name)
        assert read is not None
        assert read.ranking.tolist() == [7, 3, 5]
        assert (read.vocabulary, read.trained) == (2, {"steps": 9})


def test_it_lies_where_no_other_program_takes_it_for_the_models_weights(tmp_path: Path) -> None:
    write_draft(FILE, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["forerun"]
    assert list(tmp_path.glob("*.safetensors")) == []


@pytest.mark.parametrize("name", ["somebody/else", object()])
def test_a_model_that_forerun_did_not_train_has_none(tmp_path: Path, name: object) -> None:
    assert read_draft(name) is None
    assert read_draft(tmp_path) is None


def test_a_second_one_is_refused(tmp_path: Path) -> None:
    write_draft(FILE, tmp_path)
    with pytest.raises(ValueError, match="is there already"):
        write_draft(FILE, tmp_path)


@pytest.mark.parametrize("content", ["{", "{}", '{"format": "forerun trained draft", "version": 2}'])
def test_a_file_that_can_not_be_read_says_so(tmp_path: Path, content: str) -> None:
    write_draft(FILE, tmp_path)
    (tmp_path / "forerun" / "draft.json").write_text(content)
    with pytest.raises(InvalidModelFile, match="holds no trained draft that can be read"):
        read_draft(tmp_path)
