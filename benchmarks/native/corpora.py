"""What `forerun corpus build` takes for a large text, and what a draft from it costs.

    python benchmarks/native/corpora.py smollm2 OUT.json --megabytes 100 [--roots /usr ...] [--work .runs/corpora]

The text is what the folders hold: code, headers and documentation, each file once. The build is a process of its own, whose
processor time and largest memory are told; of the memory, pages of the written files that are mapped count too.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from statistics import median
from typing import Any

from drafting import code, rounds

from forerun import load
from forerun.engine.measurement_conditions import conditions

MEGABYTE = 1_000_000
ENDINGS = frozenset({".py", ".pyi", ".md", ".rst", ".txt", ".h", ".hpp", ".js", ".html", ".css", ".xml", ".json", ".c"})


def texts(roots: Sequence[Path]) -> Iterator[str]:
    """Different files, in the order of their names."""
    seen: set[bytes] = set()
    for root in roots:
        for folder, folders, names in os.walk(root):
            folders.sort()
            for name in sorted(names):
                file = Path(folder, name)
                if file.suffix in ENDINGS and file.is_file() and not file.is_symlink():
                    text = file.read_text(encoding="utf-8", errors="replace")
                    digest = sha256(text.encode()).digest()
                    if digest not in seen:
                        seen.add(digest)
                        yield text


def gathered(roots: Sequence[Path], wanted: int, file: Path) -> int:
    """Write up to so many bytes of text; the bytes there are."""
    size = 0
    with file.open("w", encoding="utf-8") as out:
        for text in texts(roots):
            out.write(text)
            size += len(text.encode())
            if size >= wanted:
                break
    return size


def built(model: str, file: Path, folder: Path) -> dict[str, Any]:
    begun = time.perf_counter()
    command = [sys.executable, "-m", "forerun", "corpus", "build", model, str(file), "-o", str(folder), "--json"]
    told = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "tokens": told["tokens"],
        "megabytes_on_disk": round(told["bytes"] / MEGABYTE, 1),
        "seconds": round(time.perf_counter() - begun, 1),
        "processor_seconds": round(used.ru_utime + used.ru_stime, 1),
        "largest_memory_mb": round(used.ru_maxrss * 1024 / MEGABYTE, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("output", type=Path)
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--roots", type=Path, nargs="+", default=[Path(sys.prefix), Path("/usr")])
    parser.add_argument("--work", type=Path, default=Path(".runs/corpora"))
    given = parser.parse_args()
    shutil.rmtree(given.work, ignore_errors=True)
    given.work.mkdir(parents=True)
    text, folder = given.work / "text.txt", given.work / "corpus"
    size = gathered(given.roots, given.megabytes * MEGABYTE, text)
    report = {
        "megabytes_of_text": round(size / MEGABYTE, 1),
        "load": [*os.getloadavg()],
        **built(given.model, text, folder),
    }
    print(report, flush=True)
    engine = load(given.model, weights="int4", drafter="none")
    report = {
        **conditions(engine, shlex.join(["python", *sys.argv])),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        **report,
    }
    drafter = engine.using("corpus", drafter_options={"path": str(folder)}).drafter(None)  # type: ignore[arg-type]
    ids = code(engine.tokenizer, 10_000)
    begun = time.perf_counter()
    first = [rounds(drafter, ids[at : at + 200], ids[at + 200 :]) for at in (0, 2500, 5000)]
    report["drafting"] = {"seconds_of_all": round(time.perf_counter() - begun, 2), "parts": first}
    report["drafting"]["median_us_a_round"] = median(one["us_a_round"]["median"] for one in first)
    given.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    shutil.rmtree(given.work)


if __name__ == "__main__":
    main()
