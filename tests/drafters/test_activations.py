"""A draft's plan names activations only where they are others than the runner's own."""

from __future__ import annotations

import pytest

from forerun.drafters.activations import drafted_in
from forerun.drafters.self_draft import SelfDraft
from forerun.errors import UnsupportedOption
from forerun.models.packed.plan import FULL, LayerPlan
from forerun.models.packed.runner import HFRunner
from forerun.models.packed.sequence import Sequence
from forerun.testing import tiny_model

from ..models.lean.native.kernels import native, needs_kernels

EXIT = LayerPlan.early_exit(2, 4)


@needs_kernels
@pytest.mark.parametrize("bits", [None, 16])
def test_the_runners_own_leave_a_plan_as_it_is_so_that_rows_resume(bits: int | None) -> None:
    assert drafted_in(native("llama"), EXIT, bits) is EXIT


@needs_kernels
def test_others_are_named_and_told() -> None:
    plan = drafted_in(native("llama"), EXIT, 8)
    assert (plan.activations, plan.exit_layer, plan.resumes_at) == (8, 2, None)
    assert SelfDraft(Sequence(native("llama")), plan).identity.endswith("activations 8")


def test_they_are_refused_where_there_are_none() -> None:
    runner = HFRunner(tiny_model("llama"))
    assert drafted_in(runner, FULL, None) is FULL
    for bits in (8, 16):
        with pytest.raises(UnsupportedOption, match="in the native step alone"):
            drafted_in(runner, FULL, bits)
