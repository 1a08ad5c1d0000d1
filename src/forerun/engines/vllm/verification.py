"""How vLLM verifies sampled text on CPUs, tried when the proposer starts, and mended where it is wrong.

vLLM 0.32 on CPUs without Triton takes the temperature, top-k and top-p of drafted rows from memory that nothing wrote (its
issue 55005): with drafts of any method sampled text then follows another law. Greedy text does not.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from types import ModuleType

import torch
from torch import Tensor

from ...errors import UnsupportedOption

SAMPLER, PLATFORMS, KERNELS = "vllm.v1.sample.rejection_sampler", "vllm.platforms", "vllm.triton_utils.dispatcher"
EXPANDS = "expand_kernel"
ENDS = (2, 5, 6)  # of the drafts of three requests
TRIALS = (torch.tensor([0.25, 0.0, 1.75]), torch.tensor([7, 0, 3], dtype=torch.int32))


def settle_verification(log: logging.Logger, modules: Mapping[str, ModuleType] = sys.modules) -> None:
    """Put a right kernel where vLLM's is wrong, and say so. modules: those that the process has loaded.

    Raises UnsupportedOption where it stays wrong. Elsewhere than on CPUs vLLM has other kernels, which aren't tried.
    """
    sampler, platforms = modules.get(SAMPLER), modules.get(PLATFORMS)
    if sampler is None or platforms is None or not platforms.current_platform.is_cpu() or _right(sampler):
        return
    if (kernels := modules.get(KERNELS)) is not None:
        kernels.register_kernels({f"{SAMPLER}.{EXPANDS}": expanded})
    if not _right(sampler):
        raise UnsupportedOption(
            "this vLLM verifies drafts of sampled text wrongly on CPUs (vLLM's issue 55005) and forerun can't mend it here, "
            "so text would follow another law than the model's; decode without drafts, or take a vLLM that has it mended"
        )
    log.warning(
        "forerun put a kernel of its own in the place of vLLM's %s, which loses the temperature of drafted rows on CPUs "
        "(vLLM's issue 55005)",
        EXPANDS,
    )


def expanded(output: Tensor, values: Tensor, ends: Tensor, replaced: float, by: float, most: int | None = None) -> None:
    """Write each request's value to its drafted rows, another in the place of one, as vLLM's kernel is meant to do."""
    rows = values.masked_fill(values == replaced, by).repeat_interleave(ends.diff(prepend=ends.new_zeros(1)))
    output[: len(rows)] = rows


def _right(sampler: ModuleType) -> bool:
    """Also where the function isn't there: then vLLM does it in another way, which this can't try."""
    expand = getattr(sampler, "expand_batch_to_tokens", None)
    if expand is None:
        return True
    ends = torch.tensor(ENDS, dtype=torch.int32)
    for values in TRIALS:
        wanted = torch.empty(ENDS[-1], dtype=values.dtype)
        expanded(wanted, values, ends, 0, 1)
        if not torch.equal(expand(values.clone(), ends, ENDS[-1], replace_from=0, replace_to=1), wanted):
            return False
    return True
