"""The loss and the evaluation of a student: against the target's own law, over several drafted tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ..processes import ALONE, Processes
from .data import DistilBatch
from .frozen import Frozen


@dataclass(frozen=True, slots=True, eq=False)
class Chosen:
    """The restricted vocabulary [size] that the loss is over, and the target head's rows for it [size, D]."""

    tokens: Tensor
    head: Tensor


def target_rows(outs: Sequence[Tensor], batch: DistilBatch) -> tuple[Tensor, Tensor]:
    """The target's states [B, R, D] that the passes' rows foretell, and which of them are learnt [B, R]."""
    first = batch.last.shape[1] - outs[0].shape[1]
    return batch.last[:, first:], batch.learnt[:, first:]


def distil_loss(
    outs: Sequence[Tensor],
    head: Tensor,
    batch: DistilBatch,
    frozen: Frozen,
    chosen: Chosen,
    fade: float,
    processes: Processes = ALONE,
) -> tuple[Tensor, list[Tensor]]:
    """KL(p, q) over the restricted vocabulary, pass j weighted fade^j; and each pass's own KL, for the log.

    outs are a student's passes, head its own rows for the chosen tokens. Of several processes each gives its share: added
    up these are the means over the rows of all.
    """
    last, learnt = target_rows(outs, batch)
    with torch.no_grad():
        aims = F.linear(frozen.head_rows(last[learnt].float()), chosen.head).float().log_softmax(-1)
    each = [learnt.clone() for _ in outs]
    for number, rows in enumerate(each):
        # a draft that began before the text has no row here
        rows[:, :number] = False
    counts = processes.add_up(torch.stack([rows.sum() for rows in each])).tolist()
    losses: list[Tensor] = []
    for number, (out, rows) in enumerate(zip(outs, each, strict=True)):
        q = F.linear(out[rows], head).float().log_softmax(-1)
        aim = aims if number == 0 else aims[rows[learnt]]
        # the mean; of no rows at all, 0
        losses.append(F.kl_div(q, aim, log_target=True, reduction="sum") / max(1, counts[number]))
    weights = [fade**number for number in range(len(losses))]
    total = torch.stack([w * loss for w, loss in zip(weights, losses, strict=True)]).sum() / sum(weights)
    return total, [loss.detach() for loss in losses]


@torch.inference_mode()
def chain_hits(
    outs: Sequence[Tensor], head: Tensor, batch: DistilBatch, frozen: Frozen, chosen: Chosen
) -> list[tuple[int, int]]:
    """For each drafted token of a chain: (tried, right), tried where all before it were right.

    Greedy: a token is right where the student's best is the target's best of the whole vocabulary. A student whose places
    are alike gives one pass, whose rows serve every place of a chain.
    """
    last, learnt = target_rows(outs, batch)
    best = torch.full(learnt.shape, -1)
    best[learnt] = frozen.best_tokens(frozen.head_rows(last[learnt].float()))
    found: list[tuple[int, int]] = []
    alive = learnt
    for number, out in enumerate(outs):
        if number:
            # the chain that was right up to the row before goes on in this row
            alive = F.pad(alive, (1, 0))[:, :-1] & learnt
        right = torch.zeros_like(learnt)
        right[alive] = chosen.tokens[F.linear(out[alive], head).argmax(-1)] == best[alive]
        found.append((int(alive.sum()), int(right.sum())))
        alive = right
    return found
