"""The threads of the native step: shared by all, made anew in a forked child, and no part of the result."""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from forerun.models.packed.sequence import Sequence

from ...running import chain, finish, text
from .kernels import native, needs_kernels

pytestmark = needs_kernels
SECONDS = 30


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def logits(seed: int) -> torch.Tensor:
    return finish(Sequence(native("llama")).complete(text(9, seed), chain(9))).logits.clone()


def test_threads_of_python_may_share_a_runner(threads: None) -> None:
    wanted = [logits(seed) for seed in range(8)]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            for own, found in zip(wanted, pool.map(logits, range(8)), strict=True):
                assert torch.equal(own, found)


def test_a_forked_child_has_threads_of_its_own(threads: None) -> None:
    wanted = logits(0)
    with warnings.catch_warnings():
        # that threads and fork don't mix is what this is about
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        signal.alarm(SECONDS)
        os._exit(0 if torch.equal(logits(0), wanted) else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert torch.equal(logits(0), wanted)


def test_more_threads_than_cores_or_blocks_change_nothing(threads: None) -> None:
    wanted = logits(3)
    for count in (1, 2, 7):
        torch.set_num_threads(count)
        assert torch.equal(logits(3), wanted)
