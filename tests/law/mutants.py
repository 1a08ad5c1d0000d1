"""Mistakes that real projects have made, one a function: each puts its mistake in the place of forerun's own code.

transformers #32867 (greedy draft, softmax in the ratio) and #47932 (raw law of a token drawn from a filtered one), SGLang
PR 22049 (history frozen for a round), fms-extras #12 (a target sample for each row of a tree), and what is near to them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from importlib import import_module
from typing import Any

import pytest

from forerun.core.chance import Chance
from forerun.core.forward import Rows
from forerun.core.law import Law
from forerun.core.permitted import PermittedSteps
from forerun.core.values import ROOT, Context, Draft, Step, Verdict
from forerun.core.verify import RowLaw, verify
from forerun.drafters.tree_growth import Child as TreeChild
from forerun.drafters.tree_growth import SiblingSource, best_first

from .drafts import Child, best, without
from .exact import FractionLaw, table_law

DECODE = import_module("forerun.core.decode")
CHAIN = import_module("forerun.drafters.chain")
TREE = import_module("forerun.drafters.tree")


def _draft_law(rows: Rows) -> FractionLaw:
    law = table_law(rows.logits[-1], None)  # type: ignore[arg-type]
    assert isinstance(law, FractionLaw)
    return law


def greedy_draft_with_softmax(patch: pytest.MonkeyPatch) -> None:
    def next_step(rows: Rows, context: Context, drafted: Sequence[int]) -> Step:
        law = _draft_law(rows)
        return Step((best(law),), (len(drafted) - 1,), (law,))

    patch.setattr(CHAIN, "next_step", next_step)


def drawn_from_top_two_with_raw_draft_law(patch: pytest.MonkeyPatch) -> None:
    def next_step(rows: Rows, context: Context, drafted: Sequence[int]) -> Step:
        law, start = _draft_law(rows), len(context.ids)
        top = FractionLaw(p if token in (best(law), best(law, 1)) else 0 for token, p in enumerate(law.probs))
        return Step((context.chance.propose(top, start + len(drafted), start),), (len(drafted) - 1,), (law,))

    patch.setattr(CHAIN, "next_step", next_step)


def resampled_from_the_target_itself(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FractionLaw, "minus", lambda self, other: self)


def _verifying(patch: pytest.MonkeyPatch, wrap: Callable[[RowLaw], RowLaw]) -> None:
    """verify is asked as before, with other laws of the rows."""
    patch.setattr(
        DECODE, "verify", lambda draft, law_of_row, chance, start: verify(draft, wrap(law_of_row), chance, start)
    )


def history_frozen_at_the_round_start(patch: pytest.MonkeyPatch) -> None:
    _verifying(patch, lambda law_of_row: lambda row, drafted: law_of_row(row, ()))


def rows_off_by_one(patch: pytest.MonkeyPatch) -> None:
    _verifying(patch, lambda law_of_row: lambda row, drafted: law_of_row(max(row - 1, 0), drafted))


def _dropping(patch: pytest.MonkeyPatch, drop: Callable[[Law, float, int], bool]) -> None:
    """The last token of a chain is dropped if drop(its target law, its draft probability, itself) says so."""

    def cut(draft: Draft, law_of_row: RowLaw, chance: Chance, start: int) -> Verdict:
        if len(draft) and (drawn_from := draft.laws[-1]) is not None:
            token, before = draft.tokens[-1], draft.tokens[:-1]
            if drop(law_of_row(len(before), before), drawn_from.probability(token), token):
                draft = Draft(before, draft.parents[:-1], draft.laws[:-1])
        return verify(draft, law_of_row, chance, start)

    patch.setattr(DECODE, "verify", cut)


def unlikely_drawn_token_dropped(patch: pytest.MonkeyPatch) -> None:
    _dropping(patch, lambda law, drawn_with, token: drawn_with < Fraction(2, 5))


def dropped_by_the_targets_law(patch: pytest.MonkeyPatch) -> None:
    _dropping(patch, lambda law, drawn_with, token: law.probability(token) < drawn_with)


def siblings_with_the_first_ones_law(law: FractionLaw, propose: Callable[[Law], int]) -> list[Child]:
    """Drawn without replacement, verified as if they had been drawn with it."""
    first = propose(law)
    rest = without(law, first)
    return [(first, law)] if rest is None else [(first, law), (propose(rest), law)]


def a_target_sample_for_each_row(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DECODE, "verify", verify_by_rows)


def verify_by_rows(draft: Draft, law_of_row: RowLaw, chance: Chance, start: int) -> Verdict:
    """Every root-to-leaf row is compared with a sample of its own, and the longest match wins."""
    verdicts = [
        _match(draft, leaf, law_of_row, chance, start) for leaf in range(len(draft)) if leaf not in draft.parents
    ]
    return max(verdicts, key=lambda verdict: len(verdict.path), default=_match(draft, ROOT, law_of_row, chance, start))


def _match(draft: Draft, leaf: int, law_of_row: RowLaw, chance: Chance, start: int) -> Verdict:
    row: list[int] = []
    while leaf != ROOT:
        row.insert(0, leaf)
        leaf = draft.parents[leaf]
    path: list[int] = []
    tokens: list[int] = []
    for node, child in zip([ROOT, *row], [*row, None], strict=True):
        number = chance.uniform(b"row", start + len(tokens), row[-1] if row else ROOT)
        tokens.append(law_of_row(node + 1, tuple(tokens)).quantile(number))
        if child is None or draft.tokens[child] != tokens[-1]:
            break
        path.append(child)
    return Verdict(tuple(path), tuple(tokens))


def accepted_at_the_ratio_itself(patch: pytest.MonkeyPatch) -> None:
    def accept(self: Chance, ratio: float, position: int, sibling: int) -> bool:
        return self.uniform(b"accept", position, sibling) <= ratio

    patch.setattr(Chance, "accept", accept)


def draft_numbers_without_the_round(patch: pytest.MonkeyPatch) -> None:
    def propose(self: Chance, law: Law, position: int, start: int, sibling: int = 0) -> int:
        return law.quantile(self.uniform(b"draft", position, sibling))

    patch.setattr(Chance, "propose", propose)


def one_number_for_coin_and_token(patch: pytest.MonkeyPatch) -> None:
    def draw(self: Chance, law: Law, position: int) -> int:
        return law.quantile(self.uniform(b"accept", position, 0))

    patch.setattr(Chance, "draw", draw)


def everything_accepted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Chance, "accept", lambda self, ratio, position, sibling: ratio > 0)


Taken = list[tuple[int, TreeChild]]


def _growing(patch: pytest.MonkeyPatch, change: Callable[[Taken], Taken]) -> None:
    """A tree's levels are what forerun takes for them, changed."""

    def changed(offers: Sequence[SiblingSource], nodes: int, prices: Sequence[float]) -> Taken:
        return change(best_first(offers, nodes, prices))

    patch.setattr(TREE, "best_first", changed)


def unlikely_drawn_siblings_pruned(patch: pytest.MonkeyPatch) -> None:
    _growing(
        patch,
        lambda taken: [
            (index, child)
            for index, child in taken
            if child.law is None or child.law.probability(child.token) >= Fraction(2, 5)
        ],
    )


def drawn_siblings_ranked_by_what_they_are(patch: pytest.MonkeyPatch) -> None:
    _growing(patch, lambda taken: sorted(taken, key=lambda one: one[1].token, reverse=True))


def forbidden_drawn_token_dropped(patch: pytest.MonkeyPatch) -> None:
    """A token that was drawn from a law without the mask is left out if the mask forbids it."""
    of = PermittedSteps.of

    def cut(self: PermittedSteps, step: Step) -> Step | None:
        found = of(self, replace(step, laws=(None,) * len(step.laws)))
        return None if found is None else replace(found, laws=step.laws)

    patch.setattr(PermittedSteps, "of", cut)


def mask_frozen_at_the_round_start(patch: pytest.MonkeyPatch) -> None:
    allowed = Context.allowed
    patch.setattr(Context, "allowed", lambda self, drafted: allowed(self, ()))


def draft_law_without_its_mask(patch: pytest.MonkeyPatch) -> None:
    """Tokens are drawn from the masked law, and the raw law is what verification is told."""
    step = CHAIN.next_step

    def unmasked(rows: Any, context: Context, drafted: Sequence[int]) -> Step:
        own = step(rows, context, drafted)
        return replace(own, laws=(CHAIN.law(rows.logits[-1], context.sampling),))

    patch.setattr(CHAIN, "next_step", unmasked)
