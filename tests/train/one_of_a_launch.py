"""One process of a launch that trains with forerun, run by run: accelerate launch ... one_of_a_launch.py RUNS NOTES.

RUNS is JSON: for each run the port of the store where the processes meet, the command line, and the step at which it is
stopped, if any: by an interruption of all processes, or by the death of the last one. NOTES-RANK is a file to be written:
for each run how many numbers of trained weights an optimiser's step had in this process.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from torch.optim.optimizer import register_optimizer_step_post_hook

from forerun.cli import run

LAST = os.environ["RANK"] == str(int(os.environ["WORLD_SIZE"]) - 1)


class Watch:
    """Sees the optimiser's steps of a run, and stops it after some."""

    def __init__(self, notes: Path, before: list[int], stop: str | None) -> None:
        self.held = 0
        self._notes, self._before = notes, before
        self._steps = 0
        self._how, _, step = (stop or "never 0").partition(" ")
        self._stop = int(step)

    def __call__(self, optimiser: torch.optim.Optimizer, *given: Any) -> None:
        weights = [weight.detach() for group in optimiser.param_groups for weight in group["params"]]
        self.held = sum((one.to_local() if isinstance(one, DTensor) else one).numel() for one in weights)
        self._notes.write_text(json.dumps([*self._before, self.held]))
        self._steps += 1
        if self._steps == self._stop:
            if self._how == "interrupted":
                raise KeyboardInterrupt
            if LAST:
                os._exit(9)


def main() -> int:
    notes: list[int] = []
    for port, command, stop in json.loads(sys.argv[1]):
        os.environ["MASTER_PORT"] = str(port)
        watch = Watch(Path(f"{sys.argv[2]}-{os.environ['RANK']}"), notes, stop)
        handle = register_optimizer_step_post_hook(watch)
        status = run(command)
        handle.remove()
        if status and stop is None:
            return status
        notes = [*notes, watch.held]
    return 0


if __name__ == "__main__":
    sys.exit(main())
