"""One of two processes that train together, as a launcher would start it: python one_of_two.py RUNS NOTES.

RUNS is JSON: for each run the port of the store where the two meet, and the command line. NOTES is a file to be written:
for each run the samples that layer dropout kept, call by call.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from forerun.cli import run
from forerun.train.layerskip import layer_dropout

kept = layer_dropout.kept
notes: list[list[list[int]]] = []


def noted(seed: int, step: int, micro: int, layer: int, batch: int, rate: float) -> list[int]:
    samples = kept(seed, step, micro, layer, batch, rate)
    notes[-1].append(samples)
    return samples


def main() -> int:
    layer_dropout.kept = noted
    for port, command in json.loads(sys.argv[1]):
        os.environ["MASTER_PORT"] = str(port)
        notes.append([])
        if status := run(command):
            return status
    Path(sys.argv[2]).write_text(json.dumps(notes))
    return 0


if __name__ == "__main__":
    sys.exit(main())
