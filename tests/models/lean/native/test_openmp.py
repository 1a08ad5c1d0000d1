"""What the environment tells OpenMP."""

from __future__ import annotations

import pytest

from forerun.models.lean.native.openmp import settings, spins


def test_only_what_is_set_is_told() -> None:
    assert settings({"OMP_NUM_THREADS": "2", "OMP_PLACES": "", "PATH": "/bin"}) == {"OMP_NUM_THREADS": "2"}
    assert settings({}) == {}


def test_the_environment_of_the_process_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KMP_BLOCKTIME", "1")
    assert settings()["KMP_BLOCKTIME"] == "1"


@pytest.mark.parametrize(
    ("told", "name"),
    [
        ({}, None),
        ({"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "1000", "KMP_BLOCKTIME": "200"}, None),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, "OMP_WAIT_POLICY"),
        ({"GOMP_SPINCOUNT": "infinite"}, "GOMP_SPINCOUNT"),
        ({"KMP_BLOCKTIME": "infinite"}, "KMP_BLOCKTIME"),
    ],
)
def test_threads_that_never_sleep_are_named(told: dict[str, str], name: str | None) -> None:
    assert spins(told) == name
