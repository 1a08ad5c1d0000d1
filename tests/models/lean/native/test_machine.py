"""What forerun doctor says of a machine."""

from __future__ import annotations

import pytest

from forerun.models.lean.native import library
from forerun.models.lean.native.library import SWITCH
from forerun.models.lean.native.machine import Machine, machine, read_bandwidth

from .kernels import LEVELS, kernels, needs_kernels


@needs_kernels
def test_a_machine_with_kernels_is_described_and_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, LEVELS[-1])
    found = machine()
    assert found.usable == tuple(LEVELS)
    assert set(found.usable) <= set(found.built)
    assert found.kernels == LEVELS[-1]
    assert found.bandwidth is not None
    assert found.bandwidth > 1e8


@needs_kernels
def test_kernels_that_are_switched_off_are_there_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "off")
    found = machine()
    assert (found.kernels, found.reason) == ("", "FORERUN_NATIVE=off says so")
    assert found.usable == tuple(LEVELS)


def test_a_machine_without_kernels_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "built", lambda level: None)
    monkeypatch.delenv(SWITCH, raising=False)
    found = machine()
    assert (found.usable, found.kernels, found.bandwidth) == ((), "", None)
    assert "were not built" in found.reason
    assert found.best_seconds(10**8) is None


def test_a_step_at_best_reads_its_weights_once() -> None:
    assert Machine((), (), "", "", 2, 50e9).best_seconds(10**8) == pytest.approx(2e-3)


@needs_kernels
@pytest.mark.parametrize("level", LEVELS)
def test_odd_sizes_are_read_too(level: str) -> None:
    assert read_bandwidth(kernels(level), 64 * 1001) > 0
