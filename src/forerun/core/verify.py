"""The acceptance rule, for chains and trees, greedy and sampled: the output follows the target's law.

At a node with target law p:
- children that were *chosen* (point masses): draw the target's token from p and follow the child that equals it;
  else emit it. One draw a node, keyed as in plain decoding, so the text equals the seeded plain text.
- children that were *drawn*, in drawing order: x drawn from q is accepted with probability min(1, p(x) / q(x)), else p
  becomes norm(max(p - q, 0)) and the next one is tried. When none is left, the token is drawn from what remains of p.

Sources: Leviathan et al., arXiv 2211.17192; several children: Miao et al., arXiv 2305.09781. Siblings drawn without
replacement are exact too, since each carries the law that it was really drawn from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .chance import Chance
from .law import Law, PointMass
from .values import ROOT, Draft, Verdict

RowLaw = Callable[[int, tuple[int, ...]], Law]
Rule = Callable[[Draft, RowLaw, Chance, int], Verdict]


def verify(draft: Draft, law_of_row: RowLaw, chance: Chance, start: int) -> Verdict:
    """Walk from the root; start is the absolute position of the next token.

    law_of_row(row, drafted) gives the target's law of a row, 0 after the pending token and i + 1 after draft node i,
    where drafted are the tokens of the path to it. It is called only for the rows that the walk reaches.
    """
    children: dict[int, list[int]] = {}
    for node, parent in enumerate(draft.parents):
        children.setdefault(parent, []).append(node)
    path: list[int] = []
    tokens: list[int] = []
    node = ROOT
    while True:
        law = law_of_row(node + 1, tuple(tokens))
        token, child = _advance(draft, children.get(node, []), law, chance, start + len(tokens))
        tokens.append(token)
        if child is None:
            return Verdict(tuple(path), tuple(tokens))
        path.append(child)
        node = child


def follow(draft: Draft, best: Sequence[int]) -> Verdict:
    """What verify gives of chosen tokens where the law of every row is a point mass, on these tokens."""
    path: list[int] = []
    tokens = [best[0]]
    node = ROOT
    for child, token in enumerate(draft.tokens):
        if token == tokens[-1] and draft.parents[child] == node:
            path.append(child)
            tokens.append(best[child + 1])
            node = child
    return Verdict(tuple(path), tuple(tokens))


def _advance(draft: Draft, children: list[int], law: Law, chance: Chance, position: int) -> tuple[int, int | None]:
    """The token at position, and the child that holds it; None if the target added it."""
    if all(draft.laws[child] is None for child in children):
        token = chance.draw(law, position)
        return token, next((child for child in children if draft.tokens[child] == token), None)
    for sibling, child in enumerate(children):
        token = draft.tokens[child]
        drawn_from = draft.laws[child] or PointMass(token)
        drawn_with = drawn_from.probability(token)
        if drawn_with <= 0:
            raise ValueError(f"draft node {child} holds token {token}, which has probability 0 in its own law")
        if chance.accept(law.probability(token) / drawn_with, position, sibling):
            return token, child
        law = law.minus(drawn_from)
    return chance.draw(law, position), None
