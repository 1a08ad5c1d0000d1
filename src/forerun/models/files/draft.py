"""What forerun writes beside a draft checkpoint that it trained: which tokens the answers hold, and how it was trained.

The checkpoint itself is an ordinary one; this lies in a folder of it that other programs don't read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from .saved import Kind, read_saved, write_saved

KIND = Kind("trained draft", "draft")
FOLDER = "forerun"


@dataclass(frozen=True, slots=True, eq=False)
class DraftFile:
    """ranking [any]: token ids of the training answers, the most frequent first.

    vocabulary: how many of them the draft learnt to tell apart. trained says how, for the reader.
    """

    ranking: Tensor
    vocabulary: int
    trained: Mapping[str, Any] = field(default_factory=dict)


def write_draft(file: DraftFile, checkpoint: Path) -> None:
    """Raises ValueError where that fails or is there already."""
    about = {"vocabulary": file.vocabulary, "trained": dict(file.trained)}
    write_saved(KIND, checkpoint / FOLDER, {"ranking": file.ranking}, about)


def read_draft(model: Any) -> DraftFile | None:
    """What lies in a checkpoint's directory; None for a model that forerun didn't train.

    Raises InvalidModelFile on a file that can't be read.
    """
    folder = Path(model).expanduser() / FOLDER if isinstance(model, str | Path) else None
    if folder is None or not (folder / KIND.about_file).is_file():
        return None
    with read_saved(KIND, folder) as (about, tensors):
        return DraftFile(tensors["ranking"], int(about["vocabulary"]), about.get("trained", {}))
