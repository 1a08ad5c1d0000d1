"""Systems with a trained draft model for `forerun bench`. Run: python benchmarks/drafts/methods.py DRAFT DIRECTORY"""

from __future__ import annotations

import sys
from pathlib import Path

from forerun.engine.system.file import write_system
from forerun.engine.system.value import System


def main(draft: str, directory: Path) -> None:
    own = {"model": draft, "weights": "int4"}
    systems = (
        System("draft-2", "draft_model", own, "fixed", {"k": 2}),
        System("draft-3", "draft_model", own, "fixed", {"k": 3}),
        System("draft", "draft_model", own, "confidence_product", {"max_steps": 5}),
        System(
            "hybrid-draft", "hybrid", {"then": "draft_model", **own}, "threshold", {"confidence": 0.5, "max_steps": 3}
        ),
    )
    for system in systems:
        write_system(system, directory / f"{system.name}.json")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
