"""Plain decoding with the native step and with torch's operations, whole commands in turn, each in a fresh process.

Run: python benchmarks/native/decoding.py smollm2 OUT.json. Tokens a second count from the first token on, the loop included.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from forerun.engine.measurement_conditions import hardware

TURNS = 4
KERNELS = ("avx512", "off")
PROMPT = "Write a long story about a dragon."
OPTIONS = ("--weights", "int4", "--max-new-tokens", "200", "--no-speculate", "--json")


def answered(model: str, kernels: str) -> dict[str, Any]:
    """What `forerun generate --json` prints."""
    command = [sys.executable, "-m", "forerun", "generate", model, PROMPT, *OPTIONS]
    ran = subprocess.run(command, env={**os.environ, "FORERUN_NATIVE": kernels}, capture_output=True, check=True)
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def main(model: str, output: Path) -> None:
    runs = {kernels: [] for kernels in KERNELS}
    for _ in range(TURNS):
        for kernels in KERNELS:
            runs[kernels].append(answered(model, kernels)["tokens_per_second"])
    medians = {kernels: median(found) for kernels, found in runs.items()}
    told = {
        "command": f"python benchmarks/native/decoding.py {model} OUT",
        "options": [PROMPT, *OPTIONS],
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "hardware": hardware(),
        "cores": os.cpu_count(),
        "load": os.getloadavg(),
        "python": platform.python_version(),
        "versions": {package: version(package) for package in ("forerun", "torch", "transformers")},
        "tokens_per_second": runs,
        "medians": medians,
        "native_over_torch": medians["avx512"] / medians["off"],
    }
    output.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    print(medians, told["native_over_torch"])


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
