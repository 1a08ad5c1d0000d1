"""What the installed transformers' decoders came to, as a table in the package, made by `python -m forerun.families`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent.parent / "data" / "families.json"
# what comes of a family
RUNS, REFUSED, UNMADE, WRONG = "runs", "refused", "can't be made here", "wrong"


@dataclass(frozen=True, slots=True)
class Table:
    """families: model type -> what Outcome.as_dict says, for the decoders of one version of transformers."""

    transformers: str
    date: str
    command: str
    families: Mapping[str, Mapping[str, Any]]

    @property
    def stale(self) -> str:
        """A sentence where another version is installed than the one that the table was made with, "" else."""
        installed = version("transformers")
        if self.transformers == installed:
            return ""
        return (
            f"This table is of transformers {self.transformers}; {installed} is installed here, whose "
            "decoders may fare otherwise. Each is checked when it is loaded."
        )

    def matching(self, words: str) -> dict[str, Mapping[str, Any]]:
        """The families whose name, result or reason holds the words, in whatever case."""
        wanted = words.lower()
        return {
            name: one
            for name, one in self.families.items()
            if any(wanted in part.lower() for part in (name, one["result"], one["reason"]))
        }


def read_table(file: Path = FILE) -> Table:
    return Table(**json.loads(file.read_text(encoding="utf-8")))


def write_table(table: Table, file: Path = FILE) -> None:
    """One line a family, so that a change of one is a change of one line."""
    lines = ",\n".join(f"    {json.dumps(name)}: {json.dumps(one)}" for name, one in sorted(table.families.items()))
    head = {"transformers": table.transformers, "date": table.date, "command": table.command}
    told = "\n".join(f"  {json.dumps(name)}: {json.dumps(value)}," for name, value in head.items())
    file.write_text(f'{{\n{told}\n  "families": {{\n{lines}\n  }}\n}}\n', encoding="utf-8")
