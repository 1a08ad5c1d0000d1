"""Combines the processors of a request and of its checkpoint, in transformers' order.

A processor of the request replaces the checkpoint's of the same kind, as in transformers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from transformers import (
    MinPLogitsWarper,
    NoRepeatNGramLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from ...core.values import Processor, Sampling
from .defaults import CheckpointDefaults
from .processors import AFTER_PENALTIES, BEFORE_PENALTIES, LAST, WARPERS, ProcessorContext, made_of

# option -> the kind of processor that takes its place between the two tables
PENALTIES: Mapping[str, type] = {
    "repetition_penalty": RepetitionPenaltyLogitsProcessor,
    "no_repeat_ngram": NoRepeatNGramLogitsProcessor,
}


def with_checkpoint(
    own: Sampling, defaults: CheckpointDefaults, context: ProcessorContext, given: Collection[str]
) -> tuple[Sampling, list[str]]:
    """A request's sampling with the checkpoint's processors, and the fields that these come from.

    own already holds the checkpoint's options that the request leaves out. Raises what made_of raises.
    """
    before, after = (
        dict(made_of(kinds, defaults.processors, context)) for kinds in (BEFORE_PENALTIES, AFTER_PENALTIES)
    )
    theirs = {type(one): one for one in reversed(own.processors)}
    wanted = [type(one) for one in (*before.values(), *after.values())]
    wanted += [kind for option, kind in PENALTIES.items() if option in defaults.options and option not in given]
    instead = {kind: theirs[kind] for kind in wanted if kind in theirs}
    penalty, ngram = (instead.get(kind) for kind in PENALTIES.values())
    others = [one for one in own.processors if not any(one is other for other in instead.values())]
    last = dict(made_of(LAST, defaults.processors, context)) if own.temperature == 0 else {}
    sampling = replace(
        own,
        repetition_penalty=own.repetition_penalty if penalty is None else 1.0,
        no_repeat_ngram=own.no_repeat_ngram if ngram is None else 0,
        before_penalties=(*_placed(before, instead), *_there(penalty)),
        processors=(*_there(ngram), *_placed(after, instead), *others, *last.values()),
    )
    names = [name for name, one in {**before, **after}.items() if type(one) not in instead]
    if own.temperature == 0:
        return sampling, [*names, *last]
    warpers = dict(made_of(WARPERS, defaults.warpers, context))
    return _drawn(sampling, warpers), [*names, *warpers]


def _drawn(sampling: Sampling, warpers: Mapping[str, Processor]) -> Sampling:
    """top-h comes before the other filters, so transformers' own of these then follow it."""
    if "top_h" not in warpers:
        return replace(sampling, warpers=tuple(warpers.values()))
    filters: list[Processor] = []
    if sampling.top_k:
        filters.append(TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1:
        filters.append(TopPLogitsWarper(sampling.top_p))
    if sampling.min_p:
        filters.append(MinPLogitsWarper(sampling.min_p))
    first, *rest = warpers.values()
    return replace(sampling, top_k=0, top_p=1.0, min_p=0.0, warpers=(first, *filters, *rest))


def _placed(made: Mapping[str, Processor], instead: Mapping[type, Processor]) -> Iterator[Processor]:
    return (instead.get(type(one), one) for one in made.values())


def _there(one: Processor | None) -> tuple[Processor, ...]:
    return () if one is None else (one,)
