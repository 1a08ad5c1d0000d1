"""Which tables of n-grams are known here, and which are of a model's own answers; known_drafts says where they lie."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ...core.identity import Identity
from ...errors import InvalidModelFile
from .known_drafts import directories_of
from .ngrams import KIND, NgramFile, is_table, read_ngrams


@dataclass(frozen=True, slots=True)
class KnownTable:
    """source: the package's name for one that comes with forerun, else the folder that it was found in."""

    name: str
    directory: Path
    source: str
    table: NgramFile

    @property
    def nbytes(self) -> int:
        return (self.directory / KIND.weights_file).stat().st_size


@dataclass(frozen=True, slots=True)
class FoundTables:
    """unreadable: the directory of a table that can't be read -> why."""

    tables: tuple[KnownTable, ...]
    unreadable: dict[Path, str]

    def fitting(self, target: Identity) -> list[KnownTable]:
        """Those of this model's own answers, in the order in which they were found."""
        return [one for one in self.tables if one.table.target.difference(target) is None]


def find_tables() -> FoundTables:
    """All that are known. Of several with one name the first that can be read counts."""
    tables: dict[str, KnownTable] = {}
    unreadable: dict[Path, str] = {}
    for directory, source in directories_of(is_table):
        if directory.name in tables:
            continue
        try:
            tables[directory.name] = KnownTable(directory.name, directory, source, read_ngrams(directory))
        except InvalidModelFile as error:
            unreadable[directory] = str(error)
    return FoundTables(tuple(tables.values()), unreadable)


def known_table(name: str) -> Path | None:
    """Where the table lies that has this name; None for anything else."""
    return next((directory for directory, _ in directories_of(is_table) if directory.name == name), None)
