"""Whether a model runs natively is decided when it is opened, with a reason where it doesn't."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from forerun.models.lean.native.applies import WEIGHTS, native_kernels
from forerun.models.lean.native.library import SWITCH, Library
from forerun.models.lean.runner import LeanRunner
from forerun.models.lean.shape import Shape, shape_of
from forerun.testing import tiny_model

from .kernels import LEVELS, needs_kernels

CPU = torch.device("cpu")


def shape() -> Shape:
    return shape_of(tiny_model("llama").config)


@needs_kernels
@pytest.mark.parametrize("weights", WEIGHTS)
def test_small_weights_on_a_cpu_run_natively(weights: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, LEVELS[-1])
    assert isinstance(native_kernels(replace(shape(), inner=64), weights, CPU), Library)


@pytest.mark.parametrize(
    ("weights", "device", "changes", "reason"),
    [
        ("bf16", "cpu", {}, "the native step holds weights in int8, int4"),
        ("", "cpu", {}, "the native step holds weights in int8, int4"),
        ("int4", "meta", {}, "the native step runs on CPUs and the model is on meta"),
        ("int4", "cpu", {"width": 48}, r"the model's widths \(48, 4 heads of 8, 64 in the MLP\) are not"),
        ("int4", "cpu", {"head_dim": 9}, r"widths \(32, 4 heads of 9, 64 in the MLP\)"),
        ("int8", "cpu", {"inner": 72}, r"72 in the MLP\) are not multiples of 32"),
        ("int4", "cpu", {"activation": F.relu}, "the native step lacks the model's activation"),
    ],
)
def test_what_does_not_is_said(weights: str, device: str, changes: dict[str, object], reason: str) -> None:
    found = native_kernels(replace(shape(), **{"inner": 64, **changes}), weights, torch.device(device))
    assert isinstance(found, str)
    assert re.search(reason, found)


def test_a_model_that_does_not_run_natively_runs_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "off")
    runner = LeanRunner.from_model(tiny_model("llama", intermediate_size=64), "int4")
    assert runner.native == "FORERUN_NATIVE=off says so"
    assert runner._step is None
