"""Whether depth or width costs more on this machine: shapes of about equal parameters, compared.

On accelerators a layer has a cost of its own, whatever its width, and width is nearly free (Yan et al., arXiv 2402.01528).
Where memory traffic decides, parameters cost the same in any shape. The measured times show which holds here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..models.files.draft_shape import DraftShape

APART = 1.1


Row = tuple[DraftShape, int, float]  # with the parameters that a drafted token reads, and its milliseconds


@dataclass(frozen=True, slots=True)
class ShapeCosts:
    """rows: the deepest first. ratio: the deepest one's time over the widest one's.

    per_layer: milliseconds that a layer costs besides its parameters; per_million: a million parameters. Least squares over
    all shapes of the same vocabulary; None if those can't separate the two.
    """

    rows: tuple[Row, ...]
    ratio: float
    per_layer: float | None
    per_million: float | None

    @property
    def sentence(self) -> str:
        deep, wide = self.rows[0], self.rows[-1]
        compared = (
            f"at about equal parameters, {deep[0].layers} layers of width {deep[0].width} take {self.ratio:.2f} times as "
            f"long as {wide[0].layers} of width {wide[0].width}"
        )
        if self.ratio > APART:
            return f"This machine charges for depth: {compared}, so a draft should be shallow and wide."
        if self.ratio < 1 / APART:
            return f"This machine charges for width: {compared}, so a draft should be deep and narrow."
        return f"This machine charges for parameters, not for their shape: {compared}."


def compare_shapes(equal: Sequence[Row], every: Sequence[Row]) -> ShapeCosts | None:
    """equal: shapes to compare, of one vocabulary, the deepest first; every: all there are. None unless depths differ."""
    if len({shape.layers for shape, _, _ in equal}) < 2:
        return None
    alike = [row for row in every if row[0].vocabulary == equal[0][0].vocabulary]
    counts = np.array([[1.0, shape.layers, read / 1e6] for shape, read, _ in alike])
    per_layer = per_million = None
    if len(alike) > 3 and np.linalg.matrix_rank(counts) == 3:
        found = np.linalg.lstsq(counts, np.array([ms for _, _, ms in alike]), rcond=None)[0]
        per_layer, per_million = float(found[1]), float(found[2])
    return ShapeCosts(tuple(equal), equal[0][2] / equal[-1][2], per_layer, per_million)
