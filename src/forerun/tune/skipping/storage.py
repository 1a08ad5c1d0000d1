"""Stores the trials of a search, so that it can be killed, resumed, and shared by several workers.

A worker holds a file lock while it runs, and its trials carry the lock's name. The system frees the lock of a killed worker
at once, so its unfinished trials are known to be lost and marked as failed. Timing trials hold one more lock, one for the
machine: two measurements never overlap.
"""

from __future__ import annotations

import hashlib
import socket
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, final

from filelock import FileLock, Timeout
from optuna.exceptions import OptunaError
from optuna.storages import BaseStorage, JournalStorage, RDBStorage, get_storage
from optuna.storages.journal import JournalFileBackend
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState
from platformdirs import user_cache_path
from sqlalchemy.exc import SQLAlchemyError

DATABASES = (".db", ".sqlite", ".sqlite3")
GRACE = timedelta(minutes=1)
WORKER, HOST = "worker", "host"


@final
class _JournalLock:
    """The journal's lock. The system frees it with the process, and a line that a kill cut off is removed."""

    def __init__(self, journal: Path) -> None:
        self._journal = journal
        self._lock = FileLock(f"{journal}.lock")

    def acquire(self) -> bool:
        self._lock.acquire()
        _cut_broken_end(self._journal)
        return True

    def release(self) -> None:
        self._lock.release()


def _cut_broken_end(journal: Path) -> None:
    with journal.open("rb+") as file:
        end = file.seek(0, 2)
        at = end
        tail = b""
        while at and b"\n" not in tail:
            step = min(at, 4096)
            at = file.seek(at - step)
            tail = file.read(step) + tail
        whole = at + tail.rfind(b"\n") + 1
        if whole < end:
            file.truncate(whole)


def open_storage(address: str | Path) -> BaseStorage:
    """A journal file, an SQLite file (.db, .sqlite, .sqlite3), or any address that Optuna knows, such as mysql://...

    Raises ValueError where it can't be opened.
    """
    text = str(address)
    try:
        if "://" in text:
            with _lock_of(text, "open"):
                return get_storage(text)
        path = Path(text)
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix in DATABASES:
            # workers that begin at once would all make the tables, and all but one fail
            with _lock_of(text, "open"):
                return RDBStorage(f"sqlite:///{path.absolute()}", engine_kwargs={"connect_args": {"timeout": 60}})
        lock: Any = _JournalLock(path)  # the base class that Optuna's annotation asks for is private
        return JournalStorage(JournalFileBackend(text, lock))
    except (OSError, ImportError, ValueError, OptunaError, SQLAlchemyError) as error:
        raise ValueError(f"storage {text} can't be opened: {error}") from error


def timing_lock() -> FileLock:
    """Held while something is timed; the same for all of this user's searches on this machine."""
    return FileLock(_lock_folder() / "timing.lock")


def _lock_folder() -> Path:
    """In the user's cache; if that can't be written, in another folder that all processes of this user find."""
    folder = user_cache_path("forerun") / "locks"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:
        owner = hashlib.sha256(str(folder).encode()).hexdigest()[:16]
        instead = Path(tempfile.gettempdir()) / f"forerun-locks-{owner}"
        instead.mkdir(exist_ok=True)
        return instead


def _lock_of(address: str, name: str) -> FileLock:
    """A lock of this machine's workers on one storage: beside a file, else in the user's cache."""
    if "://" in address:
        place = hashlib.sha256(address.encode()).hexdigest()[:16]
        return FileLock(_lock_folder() / f"{place}.{name}.lock")
    return FileLock(f"{address}.{name}.lock")


@final
class Worker:
    """One process's part in a study. Use it as a context; its trials carry `name`."""

    def __init__(self, study: Study, address: str | Path) -> None:
        self.study = study
        self.name = uuid.uuid4().hex[:12]
        self._address = str(address)
        self._alive = _lock_of(self._address, self.name)
        self._turn = _lock_of(self._address, "turn")

    def __enter__(self) -> Worker:
        self._alive.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self._alive.release()
        Path(self._alive.lock_file).unlink(missing_ok=True)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """While this holds, no other worker of this machine begins a trial."""
        with self._turn:
            yield

    def ask(self, distributions: dict[str, Any]) -> Trial:
        """Begin a trial that bears this worker's name. Call it in turn()."""
        trial = self.study.ask(distributions)
        trial.set_user_attr(HOST, socket.gethostname())
        trial.set_user_attr(WORKER, self.name)
        return trial

    def fail_lost_trials(self) -> int:
        """Mark as failed what killed workers left under way, and say how many. Call it in turn().

        Trials of other machines are left alone. A trial without a name was lost as it began.
        """
        lost = [
            one for one in self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)) if self._is_lost(one)
        ]
        for one in lost:
            self.study.tell(one.number, state=TrialState.FAIL)
        return len(lost)

    def _is_lost(self, trial: FrozenTrial) -> bool:
        worker = trial.user_attrs.get(WORKER)
        if worker is None:
            begun = trial.datetime_start or datetime.now()
            return "://" not in self._address or datetime.now() - begun > GRACE
        if worker == self.name or trial.user_attrs[HOST] != socket.gethostname():
            return False
        lock = _lock_of(self._address, worker)
        try:
            with lock.acquire(timeout=0):
                pass
        except Timeout:
            return False
        Path(lock.lock_file).unlink(missing_ok=True)
        return True
