"""Systems with an exit adapter for `forerun bench`. Run: python benchmarks/adapters/methods.py ADAPTER DIRECTORY"""

from __future__ import annotations

import sys
from pathlib import Path

from forerun.engine.system.file import write_system
from forerun.engine.system.value import System

# what lookup finds is drafted whole, up to three tokens; the adapter goes on while it is sure
SUREST = ("threshold", {"confidence": 0.5, "max_steps": 3})


def main(adapter: str, directory: Path) -> None:
    own = {"adapter": adapter, "vocabulary": 4096}
    systems = (
        System("adapter", "exit_adapter", {**own, "weights": "int4"}, "confidence_product", {"max_steps": 4}),
        System("adapter-2", "exit_adapter", own, "fixed", {"k": 2}),
        System("hybrid", "hybrid", {"then": "exit_adapter", **own, "weights": "int8"}, *SUREST),
        System("hybrid-int4", "hybrid", {"then": "exit_adapter", **own, "weights": "int4"}, *SUREST),
    )
    for system in systems:
        write_system(system, directory / f"{system.name}.json")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
