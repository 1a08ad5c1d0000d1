"""Where a training run writes until it is complete: OUTPUT.part, which becomes OUTPUT in one move at the end.

After a kill it holds complete checkpoints, from which the same run resumes. A run that fails before its first checkpoint
leaves only files that were expensive to make.
"""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, final

ABOUT = "run.json"
STATE = "trainer_state.json"
FULL = ("No space left", "file write failed", "PytorchStreamWriter failed", "File too large")


def check_output(output: Path, resume: bool) -> None:
    """Raise ValueError where there is something already, or nothing to resume."""
    part = _part(output)
    if output.exists():
        raise ValueError(f"{output} exists already; give another output, or remove it")
    if resume and not (part / ABOUT).exists():
        raise ValueError(f"nothing to resume: there is no interrupted run at {part}")
    if not resume and part.exists():
        raise ValueError(f"an interrupted run is at {part}; continue it with --resume, or remove it")


def check_space(output: Path, needed: int) -> None:
    """Raise ValueError where fewer bytes are free than the run will need at its fullest."""
    place = next(folder for folder in (output.absolute(), *output.absolute().parents) if folder.exists())
    free = shutil.disk_usage(place).free
    if free < needed:
        raise ValueError(
            f"the run needs {needed / 1e9:.1f} GB for its checkpoints and there are {free / 1e9:.1f} GB free at {place}; "
            "free some space, or choose another output"
        )


def _part(output: Path) -> Path:
    return output.with_name(output.name + ".part")


@final
class OutputFolder:
    """OUTPUT.part of a run. about identifies the run: any other run is refused.

    expensive gives the folders in it that are kept even without a complete checkpoint.
    """

    def __init__(
        self, output: Path, about: Mapping[str, Any], expensive: Callable[[Path], Sequence[Path]] = lambda part: ()
    ) -> None:
        self.output = output
        self._expensive = expensive
        self.path = _part(output)
        self._about = json.loads(json.dumps(about))

    def open(self) -> None:
        """Create the directory, or raise ValueError if it belongs to another run."""
        file = self.path / ABOUT
        if not file.exists():
            self.path.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(self._about, indent=1), encoding="utf-8")
            return
        known = json.loads(file.read_text(encoding="utf-8"))
        for name, value in self._about.items():
            if known.get(name) != value:
                raise ValueError(f"the run at {self.path} had another {name}: {known.get(name)} there, {value} now")

    def checkpoint(self) -> Path | None:
        """The last complete checkpoint; its state is written last, so one without it is broken."""
        whole = [folder for folder in self.path.glob("checkpoint-*") if _is_whole(folder)]
        return max(whole, key=lambda folder: int(folder.name.rpartition("-")[2]), default=None)

    def sweep(self) -> None:
        """Remove broken checkpoints; if none is complete, also everything that was not expensive."""
        for folder in self.path.glob("checkpoint-*"):
            if not _is_whole(folder):
                shutil.rmtree(folder)
        if self.checkpoint() is not None:
            return
        expensive = self._expensive(self.path)
        if not expensive:
            shutil.rmtree(self.path, ignore_errors=True)
            return
        for other in set(self.path.iterdir()) - {self.path / ABOUT, *expensive}:
            if other.is_dir():
                shutil.rmtree(other)
            else:
                other.unlink()

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """After any error in the block, remove broken files; a full disk becomes a ValueError."""
        try:
            yield
        except BaseException as error:
            self.sweep()
            if isinstance(error, Exception) and _says_full(error):
                raise ValueError(f"no space left to write to {self.path}; free some space ({self._left()})") from error
            raise

    def _left(self) -> str:
        kept = self.checkpoint()
        names = [one.name for one in self._expensive(self.path)] if kept is None else [kept.name]
        return f"--resume continues from {', '.join(names)}" if names else "nothing of the run was kept"

    def finish(self, model: Path, logs: Path) -> None:
        """The model's directory, with the logs in it, becomes the output."""
        if logs.exists():
            shutil.move(logs, model / "logs")
        model.rename(self.output)
        shutil.rmtree(self.path)


def _is_whole(folder: Path) -> bool:
    try:
        json.loads((folder / STATE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return True


def _says_full(error: Exception) -> bool:
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return True
    return any(words in str(error) for words in FULL)
