"""The best tokens of rows of logits, each with its share of theirs."""

from __future__ import annotations

from collections.abc import Sequence

from ...core.forward import Rows
from ...core.law import Filtered
from ...core.values import Sampling

MOST = 8  # tokens of a row
BEST = Sampling(temperature=1.0, top_k=MOST)
Ranking = list[tuple[int, float]]


def best_tokens(rows: Rows, wanted: Sequence[int]) -> list[Ranking]:
    """Of each of these rows, the best first; empty for a row that has no softmax."""
    chooser = rows.chooser
    if chooser is not None:
        laws = [chooser.filtered(rows.logits[row], BEST) for row in wanted]
        if all(isinstance(law, Filtered) for law in laws):
            return [_sorted(law) for law in laws if isinstance(law, Filtered)]
    logits = rows.logits[list(wanted)].float()
    values, tokens = logits.topk(min(MOST, logits.shape[-1]))
    return [
        [(token, share) for token, share in zip(*row, strict=True) if share > 0]
        for row in zip(tokens.tolist(), values.softmax(-1).tolist(), strict=True)
    ]


def _sorted(law: Filtered) -> Ranking:
    """More than MOST where tokens are equally good: the lowest of them stay."""
    return sorted(zip(law.tokens, law.probs, strict=True), key=lambda one: -one[1])[:MOST]
