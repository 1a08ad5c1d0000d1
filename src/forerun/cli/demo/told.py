"""What forerun demo says of its figures: a table a kind of prompts, and a sentence on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from ..compare import verdict
from ..conclusion import effect
from .measured import Kind

COLUMNS = ("method", "weights", "tokens/s", "over plain", "tokens/round", "text")
# by how much plain decoding of the same weights is faster at most, unless the machine did other things meanwhile
SLOWEST = 30
FLATTERED = (
    "The bundled model's file holds 4-bit weights, so its int4 copy says nearly always what the model says; of a model in "
    "16 bits expect fewer right tokens."
)


def rows(kind: Kind) -> list[tuple[str, ...]]:
    """Plain decoding before each of its methods, and transformers at the end."""
    from ...bench.comparison import spread

    told: list[tuple[str, ...]] = []
    for contender, one in kind.compared:
        low, high = spread(one.ratios)
        told.append(("plain decoding", contender.weights, f"{median(one.plain.rates):.1f}", "1", "1", ""))
        told.append(
            (
                contender.name,
                contender.weights,
                f"{median(one.speculative.rates):.1f}",
                f"{one.speedup:.2f} ({low:.2f} to {high:.2f})",
                f"{one.speculative.stats.tokens_per_round:.2f}",
                "the plain one" if one.identical else one.verdict,
            )
        )
    other = kind.transformers
    plain = kind.plain_rate("bfloat16")
    over = f"{other.rate / plain:.2f}" if plain else ""
    told.append(
        (
            "transformers' generate",
            "bfloat16",
            f"{other.rate:.2g}" if other.rate < 1 else f"{other.rate:.1f}",
            over,
            "1",
            "the plain one" if other.parted is None else "parts",
        )
    )
    return told


def sentence(kind: Kind) -> str:
    """What the figures of a kind say, whether they are in favour or not."""
    said = [f"{contender.name} {effect(one)} in {contender.weights}" for contender, one in kind.compared]
    told = f"On {kind.described}: {'; '.join(said)}."
    rate = kind.transformers.rate
    if rate * SLOWEST < kind.plain_rate("bfloat16"):
        told += (
            f" transformers' generate can't be told: it wrote {rate:.2g} tokens/s, as where other programs take its cores "
            "or bfloat16 has no fast products."
        )
    elif rate:
        compared = ", ".join(
            f"{contender.name} in {contender.weights} {median(one.speculative.rates) / rate:.1f}"
            for contender, one in kind.compared
        )
        told += f" Times as fast as transformers' generate in bfloat16: {compared}."
    return told


def texts(kinds: Sequence[Kind]) -> Iterator[str]:
    """Whether texts are the plain ones, and where one isn't by what margin it parts."""
    unequal = [
        f"{contender.name} in {contender.weights} on {kind.described}: {verdict(one)}"
        for kind in kinds
        for contender, one in kind.compared
        if not one.identical
    ]
    yield from unequal or ["Every text with speculation is the plain text of the same weights, token for token."]
    for kind in kinds:
        if kind.transformers.parted is not None:
            number, at, margin = kind.transformers.parted
            yield (
                f"transformers' text on {kind.described} parts from forerun's plain one in bfloat16 at answer {number + 1}, "
                f"token {at + 1}, where that one preferred its token by {margin:.3g}: both round, in other places."
            )
