"""The best cascade that is known for a model: text that is copied, then a draft that was trained for it, if there is one.

A table of the model's own n-grams, where one is known, is asked where the text is less sure, and costs no forward. A
trained draft is taken where it is small beside the model, and begins with the end of the prompt: reading a long one takes
longer than all that its drafts give. A model whose weights are floats drafts in 4-bit weights of its own, too, which takes
a third or less of a forward. Other drafters need training, or seldom pay (recycling, early exits, trees), so they are
named where they are wanted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.drafter import Drafter
from ..core.learned import Learning, learned_by
from ..errors import ForerunError, UnsupportedOption
from ..models.files.known_drafts import KnownDraft, known_drafts
from ..models.files.known_tables import KnownTable, find_tables
from .base import DRAFTERS, DrafterFactory, Parts
from .cascade import cascade_of

COPYING, TRAINED, CARVED = "suffix", "draft_model", "guessed"
# a draft, of what a forward of the model reads; measured: .07 pays in some minutes alone, .02 does always, but not beside a
# table
LARGEST, LARGEST_BESIDE_TABLE = 0.05, 0.02
LARGEST_CARVED = 1e9  # bytes that a forward reads: 4-bit weights of more take seconds to make, and memory of their own
SMALL, FREQUENT = "int4", 3  # the form of carved weights, and the part of the vocabulary that they draft among
READS = 128  # tokens of a long text: the rest makes its drafts hardly better, and the first of them later


@DRAFTERS("auto", source="forerun")
def build(parts: Parts, *, trained: bool = True, carved: bool = True, keep: bool = True) -> Learning[Any, Drafter]:
    """What is best known for this model: suffix, then a draft that was trained for it or carved from it, by rounds.

    trained: use a trained draft, and a table of the model's own n-grams, where one is known. carved: a model with native
    kernels whose weights are floats drafts in 4-bit weights of its own, which take memory beside it. keep: what is
    learnt (never a text) is kept in the user's cache for the next start; FORERUN_LEARNED=off says no for all.
    """
    table, left_out = _table(parts) if trained else (None, "")
    known = {} if table is None else {"ngrams": str(table.directory)}
    makers: dict[str, DrafterFactory] = {COPYING: DRAFTERS.entry(COPYING).build(parts, **known)}
    draft, why = (
        _trained_draft(parts, LARGEST if table is None else LARGEST_BESIDE_TABLE)
        if trained
        else (None, "no trained draft is wanted")
    )
    name = ""
    if draft is not None:
        name, makers[TRAINED] = draft
    if carved:
        own, told = _carved_draft(parts, known)
        makers |= own
        left_out += told
    names = [f"{COPYING} with the n-grams of {table.name}" if table else COPYING, *list(makers)[1:]]
    kept_as = " ".join([*names, name]).strip() if keep else ""
    choice = f"auto: {', then '.join(names)}; {why}{left_out}"
    if len(makers) == 1:
        copying = makers[COPYING]
        return Learning(lambda target: _named(copying(target)), learned_by(copying), choice, kept_as)
    made = cascade_of(list(makers.values()), list(makers))
    return Learning(made.make, made.learned, choice, kept_as)


def _table(parts: Parts) -> tuple[KnownTable | None, str]:
    """The first table of this model's own n-grams, and of those that can't be read a clause for the sentence."""
    found = find_tables()
    told = "".join(f"; a table was left out: {why}" for why in found.unreadable.values())
    return next(iter(found.fitting(parts.identity)), None), told


def _named(copying: Drafter) -> Drafter:
    copying.drafted_by = COPYING
    return copying


def _trained_draft(parts: Parts, largest: float) -> tuple[tuple[str, DrafterFactory] | None, str]:
    """The best known draft that can be opened, by name, and a sentence on the choice."""
    refused = ""
    for draft in known_drafts(parts.identity):
        try:
            _check_size(draft, parts.target.runner.step_nbytes, largest)
            make = DRAFTERS.entry(TRAINED).build(parts, model=str(draft.directory), draws=False, reads=READS)
        except (ForerunError, ValueError, OSError) as error:
            refused = refused or f"; the draft {draft.name} was left out: {error}"
            continue
        return (draft.name, make), f"the draft {draft.name} was trained for {_whom(draft, parts)}{refused}"
    return None, refused.removeprefix("; ") or "no trained draft is known for this model"


def _carved_draft(parts: Parts, table: Mapping[str, str]) -> tuple[dict[str, DrafterFactory], str]:
    """A draft in small weights of the model, by name, where one is likely to pay, and a clause for the sentence."""
    runner = parts.target.runner
    read = runner.step_nbytes
    if not runner.chains or runner.activations is not None or read is None or read > LARGEST_CARVED:
        return {}, ""
    among = max(runner.vocab_size // FREQUENT, 1)
    try:
        make = DRAFTERS.entry(CARVED).build(parts, of="self", weights=SMALL, vocabulary=among, draws=False, **table)
    except (ForerunError, ValueError) as error:
        return {}, f"; a draft in {SMALL} weights was left out: {error}"
    return {CARVED: make}, f"; the model itself drafts in {SMALL} weights"


def _check_size(draft: KnownDraft, read: int | None, largest: float) -> None:
    """Raise UnsupportedOption for one that is large beside a model whose forward reads so many bytes."""
    if read is not None and draft.nbytes > largest * read:
        raise UnsupportedOption(
            f"{draft.nbytes / 1e6:.1f} MB are much beside this form of the model ({read / 1e6:.0f} MB)"
        )


def _whom(draft: KnownDraft, parts: Parts) -> str:
    near = draft.facts.near(parts.identity)
    return "a model of this shape and tokenizer" if near else "this model"
