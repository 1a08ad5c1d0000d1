"""Where the texts of a benchmark's methods differ from plain decoding, and by how much that preferred its own token."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..engine.answer import TokenLogprob
from ..engine.engine import Engine
from ..engine.request import RequestOptions
from .backend import Backend
from .difference import CANDIDATES, Difference, allowed_margin, preferred_by, shared_length
from .interleaving import Measurements
from .methods import PLAIN


def differences(
    engine: Engine,
    measurements: Measurements,
    backends: Sequence[Backend],
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int,
) -> dict[str, list[Difference]]:
    """By method of forerun, the first differing token of each prompt; plain decoding is repeated there for its margin."""
    told: dict[int, Sequence[TokenLogprob]] = {}

    def again(number: int) -> Sequence[TokenLogprob]:
        if number not in told:
            engine.forget()
            plainly: RequestOptions = {"max_new_tokens": max_new_tokens, "seed": 0, "speculate": False}
            watched: RequestOptions = {**plainly, "logprobs": CANDIDATES, "processed_logprobs": True}
            told[number] = engine.generate(list(prompts[number]), **watched).logprobs or ()
        return told[number]

    found: dict[str, list[Difference]] = {}
    for backend in backends:
        name = backend.name
        if backend.baseline != PLAIN or name == PLAIN or name not in measurements.samples:
            continue
        found[name] = []
        for number, (plain, sample) in enumerate(
            zip(measurements.samples[PLAIN], measurements.samples[name], strict=True)
        ):
            at = shared_length(plain.ids, sample.ids)
            mine, theirs = (ids[at] if at < len(ids) else None for ids in (plain.ids, sample.ids))
            if plain.ids == sample.ids:
                continue
            margin = math.inf
            if mine is not None and theirs is not None:
                margin = preferred_by(again(number), at, mine, theirs)
            found[name].append(Difference(number, 0, at, mine, theirs, margin))
    return found


def as_dict(engine: Engine, found: Sequence[Difference], ids: Sequence[str]) -> dict[str, Any]:
    """A method's differences for the report; ids are the prompts'. A margin that isn't known is None."""
    allowed = allowed_margin(engine.runner)
    margins = [one.margin for one in found]
    return {
        "largest_margin": _finite(max(margins)) if margins else 0.0,
        "beyond_rounding": sum(margin > allowed for margin in margins),
        "differences": [
            {
                "id": ids[one.question],
                "position": one.position,
                "plain": one.plain,
                "token": one.speculative,
                "margin": _finite(one.margin),
            }
            for one in found
        ],
    }


def _finite(margin: float) -> float | None:
    return margin if math.isfinite(margin) else None
