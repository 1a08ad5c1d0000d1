"""How long the command line takes to answer without a model, and `import forerun`: two trees, run after run in turn.

Run: python benchmarks/startup.py BEFORE/src AFTER/src OUT.json. Each line is run in a fresh process, RUNS times a tree after
one that is not counted. Seconds of the clock depend on what else the machine does, those of its processors hardly.
"""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from time import perf_counter

RUNS = 5
LINES: dict[str, Sequence[str]] = {
    "import forerun": ("-c", "import forerun"),
    "forerun --version": ("-m", "forerun", "--version"),
    "forerun --help": ("-m", "forerun", "--help"),
    "forerun generate --help": ("-m", "forerun", "generate", "--help"),
    "forerun frobnicate": ("-m", "forerun", "frobnicate"),
    "forerun generate MODEL PROMPT --guess 3": ("-m", "forerun", "generate", "m", "p", "--guess", "3"),
}
PACKAGES = ("torch", "transformers", "typer", "rich")


def timed(source: Path, arguments: Sequence[str]) -> tuple[float, float, int]:
    """Seconds of the clock and of the processors that a fresh Python takes, and its exit status."""
    begun = perf_counter()
    process = subprocess.Popen(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": str(source)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return perf_counter() - begun, used.ru_utime + used.ru_stime, process.returncode


def commit(source: Path) -> str:
    told = subprocess.run(["git", "-C", source, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    return told.stdout.strip()


def hardware() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def main(before: str, after: str, out: str) -> None:
    trees = {"before": Path(before).resolve(), "after": Path(after).resolve()}
    found: dict[str, dict[str, list[tuple[float, float, int]]]] = {line: {name: [] for name in trees} for line in LINES}
    for run in range(RUNS + 1):
        for line, arguments in LINES.items():
            for name in sorted(trees, reverse=run % 2 == 0):
                one = timed(trees[name], arguments)
                if run:
                    found[line][name].append(one)
    report = {
        "command": shlex.join(["python", *sys.argv]),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "hardware": hardware(),
        "cores": os.cpu_count(),
        "load": os.getloadavg(),
        "python": platform.python_version(),
        "versions": {package: version(package) for package in PACKAGES},
        "commits": {name: commit(source) for name, source in trees.items()},
        "runs": RUNS,
        "lines": {
            line: {
                name: {
                    "status": sorted({status for _, _, status in runs}),
                    "seconds": round(median(clock for clock, _, _ in runs), 3),
                    "cpu_seconds": round(median(used for _, used, _ in runs), 3),
                    "all_seconds": [round(clock, 3) for clock, _, _ in runs],
                }
                for name, runs in sides.items()
            }
            for line, sides in found.items()
        },
    }
    Path(out).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    for line, sides in report["lines"].items():
        told = (f"{name} {one['seconds']:.2f} s ({one['cpu_seconds']:.2f} s CPU)" for name, one in sides.items())
        print(f"{line}: {', '.join(told)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
