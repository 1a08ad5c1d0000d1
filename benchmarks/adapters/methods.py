"""System descriptions of an exit adapter for `forerun bench`. Run: python benchmarks/adapters/methods.py ADAPTER DIRECTORY"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main(adapter: str, directory: Path) -> None:
    own = {"adapter": adapter, "vocabulary": 8192}
    drafters = {
        "adapter": {"name": "exit_adapter", **own},
        "hybrid": {"name": "hybrid", "then": "exit_adapter", **own},
        "hybrid-int4": {"name": "hybrid", "then": "exit_adapter", **own, "weights": "int8"},
    }
    directory.mkdir(parents=True, exist_ok=True)
    for name, drafter in drafters.items():
        text = json.dumps({"drafter": drafter, "policy": {"name": "fixed", "k": 3}})
        (directory / f"{name}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
