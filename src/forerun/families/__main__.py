"""python -m forerun.families: build every decoder of the installed transformers, try it, and write the table.

It takes some two minutes on a quiet machine, with --variants fifteen. Exit status 1 says that a family wrote another
text than its own: it must be refused.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from ..models.files.quiet import quiet
from .forked import in_a_fork
from .table import FILE, UNMADE, WRONG, Table, read_table, write_table
from .trial import Outcome, try_everything

COMMAND = "python -m forerun.families"


def main() -> int:
    parser = argparse.ArgumentParser(prog=COMMAND, description="Try every decoder of the installed transformers.")
    parser.add_argument("families", nargs="*", help="only these; the others stay as the table has them")
    parser.add_argument("--output", type=Path, default=FILE, help="where the table goes and comes from")
    parser.add_argument("--variants", action="store_true", help="also their other configurations, one change at a time")
    given = parser.parse_args()
    known = list(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
    if unknown := sorted(set(given.families) - set(known)):
        parser.error(f"no decoder of transformers: {', '.join(unknown)}")
    names = given.families or known
    torch.set_num_threads(1)
    found = {name: tried(name, f"{place}/{len(names)}", given.variants) for place, name in enumerate(names, 1)}
    command = f"{COMMAND} --variants" if given.variants else COMMAND
    date = datetime.now(UTC).date().isoformat()
    kept = kept_of(given.output) if given.families else {}
    write_table(Table(transformers.__version__, date, command, {**kept, **found}), given.output)
    return int(any(one["result"] == WRONG for one in found.values()))


def kept_of(file: Path) -> Mapping[str, Mapping[str, Any]]:
    """What a table says, if it is there and of the installed transformers."""
    if not file.is_file():
        return {}
    table = read_table(file)
    return {} if table.stale else table.families


def tried(name: str, place: str, variants: bool) -> dict[str, Any]:
    """A family's outcome, also as a line on stderr."""
    with quiet(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            one = in_a_fork(partial(_tried, name, variants))
        except RuntimeError as error:
            one = Outcome(UNMADE, str(error)).as_dict()
    print(f"[{place}] {name}: {one['result']} {one['reason']}", file=sys.stderr, flush=True)
    return one


def _tried(name: str, variants: bool) -> dict[str, Any]:
    return try_everything(name, variants).as_dict()


if __name__ == "__main__":
    sys.exit(main())
