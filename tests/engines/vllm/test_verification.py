from __future__ import annotations

import logging
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from forerun.engines.vllm.verification import KERNELS, PLATFORMS, SAMPLER, expanded, settle_verification
from forerun.errors import UnsupportedOption

LOG = logging.getLogger("test of verification")
Kernel = Callable[..., None]


def lost(output: Tensor, values: Tensor, ends: Tensor, replaced: float, by: float, most: int | None = None) -> None:
    """vLLM 0.32: the values go to a copy."""
    expanded(output.to(torch.int64), values.to(torch.int64), ends, replaced, by)


def truncated(
    output: Tensor, values: Tensor, ends: Tensor, replaced: float, by: float, most: int | None = None
) -> None:
    """Whole numbers alone come through."""
    whole = torch.zeros(len(output), dtype=torch.int64)
    expanded(whole, values.to(torch.int64), ends, replaced, by)
    output.copy_(whole)


def vllm(kernel: Kernel, cpu: bool = True, mends: bool = True) -> dict[str, ModuleType]:
    """The modules of a vLLM that expands by this kernel."""
    sampler, platforms, kernels = ModuleType(SAMPLER), ModuleType(PLATFORMS), ModuleType(KERNELS)

    def expand(values: Tensor, ends: Tensor, rows: int, replace_from: float = 0, replace_to: float = 0) -> Tensor:
        output = torch.full((rows,), -77, dtype=values.dtype)
        sampler.expand_kernel(output, values, ends, replace_from, replace_to)
        return output

    def register(overrides: dict[str, Kernel]) -> None:
        for name, own in overrides.items() if mends else ():
            assert name == f"{SAMPLER}.expand_kernel"
            sampler.expand_kernel = own  # type: ignore[attr-defined]

    sampler.expand_kernel = kernel  # type: ignore[attr-defined]
    sampler.expand_batch_to_tokens = expand  # type: ignore[attr-defined]
    platforms.current_platform = type("Platform", (), {"is_cpu": lambda self: cpu})()  # type: ignore[attr-defined]
    kernels.register_kernels = register  # type: ignore[attr-defined]
    return {SAMPLER: sampler, PLATFORMS: platforms, KERNELS: kernels}


def kernel_of(modules: dict[str, ModuleType]) -> Any:
    return modules[SAMPLER].expand_kernel


@pytest.mark.parametrize("wrong", [lost, truncated])
def test_a_wrong_kernel_gives_way_to_a_right_one_and_the_log_says_so(
    wrong: Kernel, caplog: pytest.LogCaptureFixture
) -> None:
    modules = vllm(wrong)
    settle_verification(LOG, modules)
    assert kernel_of(modules) is expanded
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "issue 55005" in caplog.text


def test_a_right_kernel_stays(caplog: pytest.LogCaptureFixture) -> None:
    def right(*given: Any) -> None:
        expanded(*given)

    modules = vllm(right)
    settle_verification(LOG, modules)
    assert kernel_of(modules) is right
    assert caplog.text == ""


def test_a_wrong_kernel_that_can_not_be_replaced_ends_the_start() -> None:
    with pytest.raises(UnsupportedOption, match="another law than the model's; decode without drafts"):
        settle_verification(LOG, vllm(lost, mends=False))
    modules = vllm(lost)
    del modules[KERNELS]
    with pytest.raises(UnsupportedOption, match="forerun can't mend it here"):
        settle_verification(LOG, modules)


def test_other_platforms_and_processes_without_vllm_are_left_alone() -> None:
    modules = vllm(lost, cpu=False)
    settle_verification(LOG, modules)
    assert kernel_of(modules) is lost
    settle_verification(LOG, {})


def test_a_vllm_without_the_function_is_left_alone() -> None:
    modules = vllm(lost)
    del modules[SAMPLER].expand_batch_to_tokens
    settle_verification(LOG, modules)
    assert kernel_of(modules) is lost


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32])
def test_values_go_to_the_rows_of_their_requests(dtype: torch.dtype) -> None:
    output = torch.full((7,), 9, dtype=dtype)
    expanded(output, torch.tensor([5, 0, 2, 3], dtype=dtype), torch.tensor([1, 3, 3, 6], dtype=torch.int32), 0, 1)
    assert output.tolist() == [5, 1, 1, 3, 3, 3, 9]
