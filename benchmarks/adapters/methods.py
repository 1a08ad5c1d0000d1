"""Systems with an exit adapter for `forerun bench`. Run: python benchmarks/adapters/methods.py ADAPTER DIRECTORY"""

from __future__ import annotations

import sys
from pathlib import Path

from forerun.system.file import write_system
from forerun.system.value import System


def main(adapter: str, directory: Path) -> None:
    own = {"adapter": adapter, "vocabulary": 8192}
    drafters = {
        "adapter": ("exit_adapter", own),
        "hybrid": ("hybrid", {"then": "exit_adapter", **own}),
        "hybrid-int4": ("hybrid", {"then": "exit_adapter", **own, "weights": "int8"}),
    }
    for name, (drafter, options) in drafters.items():
        write_system(System(name, drafter, options, "fixed", {"k": 3}), directory / f"{name}.json")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
