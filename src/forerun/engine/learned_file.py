"""What a method learnt, kept in the user's cache, so that the next start goes on where this one ended.

There is a file for each model in one form, machine and method. It holds counts, regressions and ratios of times, and never a
text; it changes how fast texts are written, never the texts. Of two processes that write, the last one's file stays whole.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import weakref
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Any, final

import torch
from rich.console import Console

from ..core.identity import Identity
from ..core.learned import Learned
from ..errors import UnsupportedOption
from ..models.files.cache import tell_unkept
from ..models.files.whole import write_whole
from ..models.gguf.convert import cache_directory
from ..models.lean.runner import LeanRunner
from ..models.packed.runner import Runner
from .hardware import hardware

SWITCH = "FORERUN_LEARNED"
FORMAT = 2
MARK = "forerun_learned"
SECONDS = 30.0  # between two times that it is written while requests end
MOST_BYTES, MOST_FILES = 1 << 20, 64


def switched_off(environment: Mapping[str, str] | None = None) -> bool:
    """Whether FORERUN_LEARNED says that nothing is kept. Raises UnsupportedOption on another value than on and off."""
    wanted = (os.environ if environment is None else environment).get(SWITCH, "") or "on"
    if wanted not in ("on", "off"):
        raise UnsupportedOption(f"{SWITCH}={wanted} is unknown; known: on, off")
    return wanted == "off"


def owner_of(runner: Runner, identity: Identity, method: str) -> dict[str, Any]:
    """What is learnt depends on this: model, form, machine and method."""
    return {
        "model": identity.as_dict(),
        "dtype": str(runner.dtype),
        "kernels": runner.kernels,
        "bytes": runner.step_nbytes if isinstance(runner, LeanRunner) else None,
        "activations": runner.activations if isinstance(runner, LeanRunner) else None,
        "hardware": hardware(runner.device),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "method": method,
    }


@final
class LearnedFile:
    """Keeps `learned` for its owner. Threads may share it."""

    def __init__(self, name: str, owner: Mapping[str, Any], learned: Mapping[str, Learned]) -> None:
        self._owner = json.loads(json.dumps(owner))
        self._learned = learned
        self._lock = Lock()
        self._written: float | None = None
        self._unkept = False
        mark = hashlib.sha256(json.dumps(owner, sort_keys=True).encode()).hexdigest()[:16]
        stem = re.sub(r"[^\w.-]", "_", Path(name).name)[:60] or "model"
        self.path = cache_directory() / "learned" / f"{stem}-{mark}.json"

    def recall(self) -> bool:
        """Go on from the file; False where there is none. One that is damaged is told of, and written anew later."""
        try:
            with self.path.open("rb") as opened:
                text = opened.read(MOST_BYTES + 1)
        except OSError:
            return False
        try:
            found = _checked(text, self._owner)
            for name, one in self._learned.items():
                if name in found:
                    one.recall(found[name])
        except ValueError as error:
            _tell(f"what was learnt before is left out, since {self.path} is damaged ({error}); it is learnt anew")
            return False
        return bool(found)

    def request_ended(self) -> None:
        """Write what was learnt, if it was not written lately."""
        now = monotonic()
        if self._written is None or now - self._written > SECONDS:
            self._written = now
            self.write()

    def write(self) -> None:
        """If the cache can't be written, stderr says so once."""
        if self._unkept or not self._lock.acquire(blocking=False):
            return
        try:
            learned = {name: one.as_data() for name, one in self._learned.items()}
            told = {MARK: FORMAT, "owner": self._owner, "check": _check(learned), "learned": learned}
            text = json.dumps(told, allow_nan=False)
            if len(text) <= MOST_BYTES:
                write_whole(self.path, text)
                _remove_oldest(self.path.parent)
        except OSError as error:
            self._unkept = True
            tell_unkept(self.path.parent, error)
        finally:
            self._lock.release()

    def write_at_the_end_of(self, engine: object) -> None:
        """Also write when the engine is no longer used, or Python ends."""
        weakref.finalize(engine, self.write)


def _checked(text: bytes, owner: Mapping[str, Any]) -> dict[str, Any]:
    """What a file holds for its owner; nothing where another version of forerun wrote it. Raises ValueError on damage."""
    if len(text) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES} bytes")
    data = json.loads(text)
    if not isinstance(data, dict) or MARK not in data:
        raise ValueError("it holds something else")
    if data[MARK] != FORMAT or data.get("owner") != owner:
        return {}
    learned = data.get("learned")
    if not isinstance(learned, dict) or data.get("check") != _check(learned):
        raise ValueError("its contents were changed")
    return learned


def _check(learned: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(learned, sort_keys=True).encode()).hexdigest()[:16]


def _remove_oldest(folder: Path) -> None:
    with suppress(OSError):
        files = sorted(folder.glob("*.json"), key=lambda file: file.stat().st_mtime)
        for file in files[:-MOST_FILES]:
            file.unlink(missing_ok=True)


def _tell(message: str) -> None:
    Console(stderr=True, highlight=False, markup=False).print(message, soft_wrap=True)
