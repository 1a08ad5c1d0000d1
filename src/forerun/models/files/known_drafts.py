"""Which trained drafts are known here, and which of them fit a model.

They are looked for in the folders that FORERUN_DRAFTS names, in the user's data directory, and in the package: each folder
holds one directory a draft, whose name is the draft's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from platformdirs import user_data_dir

from ...core.identity import Identity
from ...errors import InvalidModelFile
from .compact_draft import FILE, DraftFacts, is_compact, read_facts

SWITCH = "FORERUN_DRAFTS"
PACKAGE = "forerun"


@dataclass(frozen=True, slots=True)
class KnownDraft:
    """source: PACKAGE for one that comes with forerun, else the folder that it was found in."""

    name: str
    directory: Path
    source: str
    facts: DraftFacts

    @property
    def nbytes(self) -> int:
        return (self.directory / FILE).stat().st_size


@dataclass(frozen=True, slots=True)
class FoundDrafts:
    """unreadable: the directory of a draft that can't be read -> why."""

    drafts: tuple[KnownDraft, ...]
    unreadable: dict[Path, str]

    def fitting(self, target: Identity) -> list[KnownDraft]:
        """The best first: those trained for these weights, then those for others of this shape and tokenizer."""
        ranked = [
            ((draft.facts.near(target), -draft.facts.expected), draft)
            for draft in self.drafts
            if draft.facts.target.difference(target) is None or draft.facts.near(target)
        ]
        return [draft for _, draft in sorted(ranked, key=lambda pair: pair[0])]


def shipped_folder() -> Path:
    return Path(str(files(PACKAGE) / "data" / "drafts"))


def draft_folders(environment: Mapping[str, str] | None = None) -> dict[Path, str]:
    """Folder -> source, in the order in which a name is looked up."""
    given = (os.environ if environment is None else environment).get(SWITCH, "")
    own = [Path(name).expanduser() for name in given.split(os.pathsep) if name]
    own.append(Path(user_data_dir(PACKAGE)) / "drafts")
    return {**{folder: str(folder) for folder in own}, shipped_folder(): PACKAGE}


def find_drafts() -> FoundDrafts:
    """All that are known. Of several with one name the first counts. Folders that aren't there hold none."""
    drafts: dict[str, KnownDraft] = {}
    unreadable: dict[Path, str] = {}
    for directory, source in directories_of(is_compact):
        if directory.name in drafts:
            continue
        try:
            drafts[directory.name] = KnownDraft(directory.name, directory, source, read_facts(directory))
        except InvalidModelFile as error:
            unreadable[directory] = str(error)
    return FoundDrafts(tuple(drafts.values()), unreadable)


def known_drafts(target: Identity) -> list[KnownDraft]:
    """Those that fit a model, the best first; see FoundDrafts.fitting."""
    return find_drafts().fitting(target)


def compact_directory(model: Any) -> Path | None:
    """Where the compact draft lies that a path or a known name means; None for anything else."""
    if not isinstance(model, str | Path):
        return None
    path = Path(model).expanduser()
    if path.exists():
        return path if is_compact(path) else None
    found = (directory for directory, _ in directories_of(is_compact) if directory.name == str(model))
    return next(found, None)


def directories_of(kind: Callable[[Path], bool]) -> Iterator[tuple[Path, str]]:
    """Each directory of this kind in the folders that are searched, and its source."""
    for folder, source in draft_folders().items():
        with suppress(OSError):
            for directory in sorted(folder.iterdir()):
                if kind(directory):
                    yield directory, source
