"""A file of text that is there as a whole, as it was, or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Write the text, under another name first, and make the folder if need be: a reader never sees half of it.

    A file that is there is replaced. Raises OSError where it can't be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".partial-", dir=path.parent) as folder:
        partial = Path(folder) / path.name
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, path)
