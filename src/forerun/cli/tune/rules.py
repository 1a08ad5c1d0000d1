"""Rules as they are written on the command line: a policy, and for each option a value or several to choose from."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

from ...errors import UnsupportedOption
from ...policies.registry import POLICIES
from ..method import annotation_of
from ..values import parse

if TYPE_CHECKING:
    from ...tune.replay.report import Variant


def rule_of(text: str) -> list[Variant]:
    """The variants of "threshold confidence=0.4|0.6 max_steps=8". Raises UnsupportedOption on what can't be meant."""
    from ...tune.replay.report import Variant

    name, *pairs = text.split() or [""]
    entry = POLICIES.entry(name)
    values: dict[str, list[Any]] = {}
    for pair in pairs:
        option, separator, written = pair.partition("=")
        if not separator or not written:
            raise UnsupportedOption(
                f"a rule's options are written name=value or name=value|value, got {pair!r} in {text!r}"
            )
        annotation = annotation_of(entry, POLICIES, option)
        if annotation is None:
            known = ", ".join(entry.options) or "none"
            raise UnsupportedOption(f"policy {name!r} has no option {option!r}; its options: {known}")
        values[option] = [parse(one, annotation, option) for one in written.split("|")]
    variants = [Variant(name, dict(zip(values, chosen, strict=True))) for chosen in product(*values.values())]
    for variant in variants:
        variant.build()
    return variants
