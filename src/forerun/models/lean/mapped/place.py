"""Where a model's packed weights lie, and whether what lies there may be used."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from filelock import FileLock

from ....errors import UnsupportedOption
from ...gguf.convert import cache_directory
from .file import PARTIAL, BadFile, Contents, open_file, read_about, write_file

SWITCH = "FORERUN_PACKED"
LEAST = 16 << 20  # bytes of a model that is worth a file
ROOM = 2  # times the file's size that the disk must have left
STALE_SECONDS = 24 * 3600
NAME = 60  # characters of a model's name that a file's name begins with


def switched_off(environment: Mapping[str, str] | None = None) -> bool:
    """Whether FORERUN_PACKED says that nothing is kept. Raises UnsupportedOption on another value than on and off."""
    wanted = (os.environ if environment is None else environment).get(SWITCH, "") or "on"
    if wanted not in ("on", "off"):
        raise UnsupportedOption(f"{SWITCH}={wanted} is unknown; known: on, off")
    return wanted == "off"


def weights_folder() -> Path:
    return cache_directory() / "weights"


def kept_bytes(folder: Path) -> int:
    """Bytes of all files that are kept; none where the folder can't be read."""
    with suppress(OSError):
        return sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    return 0


@final
@dataclass(frozen=True, slots=True)
class Place:
    """The file for a model in one form of weights, by the code that is running. origin: what it must be made of."""

    folder: Path
    stem: str
    origin: Mapping[str, Any]

    @classmethod
    def of(cls, folder: Path, origin: Mapping[str, Any]) -> Place:
        owner = "\n".join((origin["model"], origin["weights"], origin["dtype"]))
        name = re.sub(r"[^\w.-]", "_", Path(origin["model"]).name.removesuffix(".gguf"))[:NAME]
        mark = hashlib.sha256(owner.encode(errors="surrogatepass")).hexdigest()[:12]
        return cls(folder, f"{name}-{origin['weights'] or 'own'}-{mark}", origin)

    @property
    def file(self) -> Path:
        return self.folder / f"{self.stem}-{self.origin['code'][:8]}.safetensors"

    def read(self, check: bool = True) -> Contents | None:
        """The file, mapped; None where there is none, or it is damaged, or was made of something else."""
        try:
            found = open_file(self.file, check)
        except (OSError, BadFile):
            return None
        if found.about.get("origin") != self.origin:
            return None
        with suppress(OSError):
            os.utime(self.file)  # of several, the one that was used last is kept
        return found

    @contextmanager
    def turn(self) -> Iterator[str | None]:
        """Held while the file is made: others wait, and find it. Gives the reason why it can't be made, or None."""
        lock = FileLock(self.folder / f"{self.stem}.lock")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock.acquire()
        except (OSError, NotImplementedError) as error:
            yield f"{self.folder} can't be written ({_reason(error)})"
            return
        try:
            yield None
        finally:
            lock.release()

    def write(self, about: Mapping[str, Any], tensors: list[Any]) -> str | None:
        """Make the file, in its turn; the reason why not, or None. Files that it replaces go."""
        size = sum(tensor.nbytes for tensor in tensors)
        try:
            if shutil.disk_usage(self.folder).free < ROOM * size:
                return f"the disk of {self.folder} has less than {ROOM * size / 1e6:.0f} MB left"
            write_file(self.file, {**about, "origin": self.origin}, tensors)
        except OSError as error:
            return f"{self.folder} can't be written ({_reason(error)})"
        remove_old(self)
        return None


def remove_old(place: Place) -> None:
    """Remove the model's files but this and the last one of other code, those of models that are gone, and remains."""
    with suppress(OSError):
        files = [file for file in place.folder.iterdir() if file.suffix == ".safetensors" and file != place.file]
        own = [file for file in files if file.name.rpartition("-")[0] == place.stem]
        own.sort(key=lambda file: file.stat().st_mtime)
        for file in (*own[:-1], *(file for file in files if file not in own and _orphaned(file))):
            file.unlink(missing_ok=True)
        for partial in place.folder.glob(f"{PARTIAL}*"):
            if time.time() - partial.stat().st_mtime > STALE_SECONDS:
                partial.unlink(missing_ok=True)


def _orphaned(file: Path) -> bool:
    """Whether the model that it was made of is no longer there."""
    try:
        return not Path(read_about(file)["origin"]["model"]).exists()
    except (OSError, BadFile, KeyError, TypeError):
        return False


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
