"""What the system fails at is one sentence where the user can mend it, and a traceback where it is our mistake."""

from __future__ import annotations

import errno
import os

import pytest

from forerun.cli.failures import closed_pipe, sentence


def failure(code: int, name: str | None = None) -> OSError:
    return OSError(code, os.strerror(code), *([] if name is None else [name]))


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO])
def test_a_full_disk_is_told_wherever_it_is_met(code: int) -> None:
    assert sentence(failure(code, "/cache/x"), []) == f"/cache/x: {os.strerror(code)}"
    assert sentence(failure(code), []) == f"can't write: {os.strerror(code)}; free some space"


@pytest.mark.parametrize("code", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_a_path_that_may_not_be_used_is_told_wherever_it_is(code: int) -> None:
    assert sentence(failure(code, "/x"), []) == f"/x: {os.strerror(code)}"


@pytest.mark.parametrize("code", [errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG])
@pytest.mark.parametrize("arguments", [["-o", "/a/b"], ["--output=/a/b"], ["/a/b/c/d"], ["/a"]])
def test_a_path_that_was_given_is_told(code: int, arguments: list[str]) -> None:
    assert sentence(failure(code, "/a/b"), arguments) == f"/a/b: {os.strerror(code)}"


@pytest.mark.parametrize("arguments", [[], ["/b"], ["generate", "", "--json"], ["/a/c"]])
def test_a_path_that_nobody_gave_is_our_mistake(arguments: list[str]) -> None:
    assert sentence(failure(errno.ENOENT, "/a/b"), arguments) is None


def test_what_is_written_beside_the_output_counts_as_given() -> None:
    assert sentence(failure(errno.ENOTDIR, "/a/out.part"), ["-o", "/a/out"]) == "/a/out.part: Not a directory"


def test_a_file_in_the_place_of_a_directory_is_told_as_such() -> None:
    told = sentence(failure(errno.EEXIST, "/a/b"), ["/a/b/c"])

    assert told == "/a/b: a directory is needed, and this is a file"


@pytest.mark.parametrize("code", [errno.EBADF, errno.EINVAL, errno.ECHILD])
def test_other_errors_are_our_mistakes(code: int) -> None:
    assert sentence(failure(code, "/a"), ["/a"]) is None
    assert sentence(failure(code), []) is None


def test_a_closed_pipe_is_found_below_the_exit_that_others_make_of_it() -> None:
    def left() -> None:
        try:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")
        except OSError:
            raise SystemExit(1)  # noqa: B904  as rich and typer do

    with pytest.raises(SystemExit) as ended:
        left()
    assert closed_pipe(ended.value)
    assert closed_pipe(BrokenPipeError())
    assert not closed_pipe(SystemExit(1))
    assert not closed_pipe(failure(errno.ENOSPC))
