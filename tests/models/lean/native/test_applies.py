"""Whether a model runs natively is decided when it is opened, with a reason where it doesn't."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from forerun.models.lean.native.applies import native_kernels
from forerun.models.lean.native.library import SWITCH, Library
from forerun.models.lean.runner import LeanRunner
from forerun.models.lean.shape import Shape, shape_of
from forerun.testing import tiny_model

from .kernels import LEVELS, needs_kernels

CPU = torch.device("cpu")
FLOATS = frozenset({torch.float32})


def shape() -> Shape:
    return shape_of(tiny_model("llama").config)


@needs_kernels
@pytest.mark.parametrize("weights", ["", "float32", "bf16", "int8", "int4"])
def test_every_form_of_weights_runs_natively_on_a_cpu(weights: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, LEVELS[-1])
    fitting = replace(shape(), mlp=64)
    assert isinstance(native_kernels(fitting, weights, FLOATS, CPU), Library)
    assert isinstance(native_kernels(fitting, weights, FLOATS | {torch.bfloat16}, CPU), Library)


@needs_kernels
def test_a_float16_model_runs_natively_in_other_weights_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, LEVELS[-1])
    own = frozenset({torch.float16, torch.float32})
    assert native_kernels(shape(), "", own, CPU) == (
        "the native step holds floats in float32 and bfloat16 and the model's are float16"
    )
    assert isinstance(native_kernels(shape(), "bf16", own, CPU), Library)


@pytest.mark.parametrize(
    ("weights", "device", "changes", "reason"),
    [
        ("int4", "meta", {}, "the native step runs on CPUs and the model is on meta"),
        ("int4", "cpu", {}, r"the model's widths \(32, 48, 4 heads of 8\) are not multiples of 32"),
        ("int8", "cpu", {"width": 48}, r"widths \(48, 48, 4 heads of 8\) are not multiples of 32"),
        ("bf16", "cpu", {"width": 40}, r"widths \(40, 48, 4 heads of 8\) are not multiples of 16"),
        ("", "cpu", {"mlp": 50}, r"widths \(32, 50, 4 heads of 8\) are not multiples of 16"),
        ("", "cpu", {"head_dim": 9}, r"widths \(32, 48, 4 heads of 9\)"),
        ("", "cpu", {"activation": F.relu}, "the native step lacks the model's activation"),
    ],
)
def test_what_does_not_is_said(weights: str, device: str, changes: dict[str, object], reason: str) -> None:
    found = native_kernels(replace(shape(), **changes), weights, FLOATS, torch.device(device))
    assert isinstance(found, str)
    assert re.search(reason, found)


def test_a_model_that_does_not_run_natively_runs_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "off")
    runner = LeanRunner.from_model(tiny_model("llama", intermediate_size=64), "int4")
    assert runner.native == "FORERUN_NATIVE=off says so"
    assert runner._step is None
