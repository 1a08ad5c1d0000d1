"""Failures of the system that the user can fix, each as one sentence; any other error keeps its traceback."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path

# may be met anywhere, whatever was asked for
ANYWHERE = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
# of any file, and of a stream, which has no name
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
# a mistake of the user's only with a path that stands on the command line, else one of ours
WITH_PATH = frozenset(
    {errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ENOTEMPTY, errno.ENAMETOOLONG, errno.ELOOP}
)


def sentence(error: OSError, arguments: Sequence[str]) -> str | None:
    """What to tell of an error, None where it is a mistake of ours."""
    reason = (
        "a directory is needed, and this is a file" if error.errno == errno.EEXIST else error.strerror or str(error)
    )
    if error.filename is None:
        return f"can't write: {reason}; free some space" if error.errno in FULL else None
    name = str(error.filename)
    if error.errno in FULL | ANYWHERE or (error.errno in WITH_PATH and _is_given(name, arguments)):
        return f"{name}: {reason}"
    return None


def closed_pipe(error: BaseException | None) -> bool:
    """Whether this comes of a pipe whose reader has gone; typer and rich make an exit of it."""
    while error is not None:
        if isinstance(error, BrokenPipeError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _is_given(name: str, arguments: Sequence[str]) -> bool:
    """Whether an argument names this path, one above it or below, or one with this name's beginning: OUTPUT.part."""
    path = Path(name).absolute()
    values = (one.partition("=")[2] if one.startswith("-") and "=" in one else one for one in arguments)
    given = [Path(value).expanduser().absolute() for value in values if value]
    return any(path == one or path in one.parents or one in path.parents or _begins(path, one) for one in given)


def _begins(path: Path, other: Path) -> bool:
    return path.parent == other.parent and path.name.startswith(other.name)
