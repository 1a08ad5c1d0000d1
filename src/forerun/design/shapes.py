"""Which shapes are measured: a grid below the target's, and shapes of equal parameters from deep and narrow to wide."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..models.files.draft_shape import DraftShape
from ..models.packed.limits import head_dim_of

DEPTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48)
WIDTHS = (1.0, 0.75, 0.5)
FINER_WIDTHS = (1.0, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25)
VOCABULARY = 8192
GRAIN = 32  # the columns that share a scale in int4
SAME = 0.12

# bytes a parameter of a layer and one of the embedding takes; int4 has a scale and a minimum for 32 columns
BYTES = {"float32": (4.0, 4.0), "bfloat16": (2.0, 2.0), "float16": (2.0, 2.0), "int8": (1.0, 1.0), "int4": (0.625, 1.0)}


@dataclass(frozen=True, slots=True)
class Size:
    """A draft's parameters: of its layers; of the whole checkpoint; those that a drafted token's forward reads.

    megabytes: the checkpoint's, held in the target's format.
    """

    layers: int
    whole: int
    read: int
    megabytes: float


def size_of(shape: DraftShape, config: Any, weights: str) -> Size:
    """config: the target's text configuration, weights the format's name as costs have it."""
    head_dim = head_dim_of(config)
    layers = shape.layer_parameters(head_dim)
    table = int(config.vocab_size) * shape.width
    tables = table if config.tie_word_embeddings else 2 * table
    of_layer, of_table = BYTES["bfloat16" if weights == "bf16" else weights]
    return Size(
        layers=layers,
        whole=layers + tables,
        read=_read(head_dim, shape),
        megabytes=(layers * of_layer + tables * of_table) / 1e6,
    )


def _read(head_dim: int, shape: DraftShape) -> int:
    return shape.layer_parameters(head_dim) + shape.vocabulary * shape.width


def grid(config: Any, cut: bool) -> Iterator[DraftShape]:
    """Depths below the target's, widths with MLP and heads in proportion, the whole vocabulary; a small one if `cut`."""
    own = DraftShape.of(config)
    vocabularies = {own.vocabulary, VOCABULARY} if cut and own.vocabulary // 2 >= VOCABULARY else {own.vocabulary}
    for vocabulary in sorted(vocabularies, reverse=True):
        for narrow in _narrowed(own, WIDTHS):
            for layers in DEPTHS:
                if layers < own.layers:
                    yield replace(narrow, layers=layers, vocabulary=vocabulary)


def equal_shapes(config: Any, vocabulary: int) -> list[DraftShape]:
    """About as many parameters as an eighth of the target's layers, head included: the deepest and narrowest first."""
    own, head_dim = DraftShape.of(config), head_dim_of(config)
    wanted = _read(head_dim, replace(own, layers=max(1, round(own.layers / 8)), vocabulary=vocabulary))
    found: list[DraftShape] = []
    for narrow in _narrowed(own, FINER_WIDTHS):
        each = replace(narrow, layers=1).layer_parameters(head_dim)
        layers = min(max(1, round((wanted - vocabulary * narrow.width) / each)), own.layers)
        shape = replace(narrow, layers=layers, vocabulary=vocabulary)
        if abs(_read(head_dim, shape) - wanted) <= SAME * wanted:
            found.append(shape)
    return sorted(found, key=lambda shape: (-shape.layers, shape.width))


def _narrowed(own: DraftShape, parts: Iterable[float]) -> list[DraftShape]:
    """The target's shape at parts of its width; those that round to the same are one."""
    group = own.heads // own.kv_heads
    found: dict[DraftShape, None] = {}
    for part in parts:
        kv_heads = max(1, round(own.kv_heads * part))
        found[
            replace(
                own,
                width=_rounded(own.width, part),
                mlp=_rounded(own.mlp, part),
                heads=kv_heads * group,
                kv_heads=kv_heads,
            )
        ] = None
    return list(found)


def _rounded(value: int, part: float) -> int:
    if part == 1:
        return value
    grain = GRAIN
    while grain > 1 and value < 8 * grain:
        grain //= 2
    return min(max(grain, round(value * part / grain) * grain), value)


def distinct(shapes: Iterable[DraftShape]) -> list[DraftShape]:
    """In the order in which they come up."""
    return list(dict.fromkeys(shapes))


def by_layer(shapes: Sequence[DraftShape]) -> dict[DraftShape, list[DraftShape]]:
    """The deepest shape of each kind of layer, as deep as any is, with the whole vocabulary -> the shapes of that kind."""
    kinds: dict[DraftShape, list[DraftShape]] = {}
    for shape in shapes:
        kinds.setdefault(replace(shape, layers=1, vocabulary=1), []).append(shape)
    return {
        replace(kind, layers=max(one.layers for one in some), vocabulary=max(one.vocabulary for one in some)): some
        for kind, some in kinds.items()
    }
