"""The processes of a launch that train together, as torchrun and accelerate launch tell them through the environment."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, final

from ..errors import ForerunError, UnsupportedOption

if TYPE_CHECKING:
    from torch import Tensor

# the first process reads texts alone while the others wait; a process that dies ends the waiting at once
PATIENCE = timedelta(days=7)


@final
@dataclass(frozen=True, slots=True)
class Processes:
    """Which of how many this one is; the first one writes and tells."""

    rank: int = 0
    size: int = 1

    @property
    def main(self) -> bool:
        return self.rank == 0

    def wait(self) -> None:
        """Until all have come here."""
        import torch.distributed as dist

        if self.size > 1:
            dist.barrier()

    def add_up(self, tensor: Tensor) -> Tensor:
        """Elementwise over all processes; the result is new and without gradient."""
        import torch.distributed as dist

        total = tensor.detach().clone()
        if self.size > 1:
            dist.all_reduce(total)
        return total


ALONE = Processes()


def launched() -> Processes:
    """Of this launch; alone where there is none."""
    return Processes(int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1")))


def sharding_asked() -> bool:
    """Whether the launch asks for FSDP. Raises UnsupportedOption where it asks for what isn't supported."""
    if not _flag("ACCELERATE_USE_FSDP"):
        return False
    version = os.environ.get("FSDP_VERSION", "1")
    if version != "2":
        raise UnsupportedOption(
            f"training shards with FSDP 2 only, and the launch asks for FSDP {version}; add --fsdp_version 2"
        )
    if _flag("FSDP_ACTIVATION_CHECKPOINTING"):
        raise UnsupportedOption(
            "FSDP's own activation checkpointing isn't supported; leave it out of the launch "
            "(train layerskip has --checkpoint-layers)"
        )
    return True


@contextmanager
def joined() -> Iterator[Processes]:
    """The processes of this launch, connected over gloo. Raises ForerunError where another one has ended too early."""
    own = launched()
    if own.size == 1:
        yield own
        return
    import torch.distributed as dist

    dist.init_process_group("gloo", timeout=PATIENCE)
    try:
        yield own
        # a process that ends while the group still stands can abort the others
        own.wait()
    except RuntimeError as error:
        if "gloo" not in str(error):
            raise
        raise ForerunError(
            "another process of this launch has ended before its time; what it said tells why"
        ) from error
    finally:
        dist.destroy_process_group()


def _flag(name: str) -> bool:
    return os.environ.get(name, "false").lower() in ("1", "true", "yes")
