"""The stochastic rule of the graph paper's code. Lossy: its output does not follow the target's law.

Each child passes with probability p(x) / q(x), and the longest path that passes is kept. So a token has as many chances as
there are continuations with it, and the replacement of a rejected token isn't drawn from the residual law. At temperature 0
it is exact.

Source: Gong et al., arXiv 2407.16207 (as the authors' code has it).
"""

from __future__ import annotations

from ...core.chance import Chance
from ...core.values import ROOT, Draft, Verdict
from ...core.verify import RowLaw


def stochastic(draft: Draft, law_of_row: RowLaw, chance: Chance, start: int) -> Verdict:
    """Replaces verify.verify, with the same arguments; the draft's laws give its tokens' probabilities q."""

    def longest(node: int, tokens: tuple[int, ...]) -> tuple[int, ...]:
        best: tuple[int, ...] = ()
        children = [child for child, parent in enumerate(draft.parents) if parent == node]
        law = law_of_row(node + 1, tokens) if children else None
        for child in children:
            assert law is not None
            token, weighed = draft.tokens[child], draft.laws[child]
            ratio = law.probability(token) / (1 if weighed is None else weighed.probability(token))
            if chance.accept(ratio, start + len(tokens), child):
                path = (child, *longest(child, (*tokens, token)))
                best = max(best, path, key=len)
        return best

    path = longest(ROOT, ())
    tokens = tuple(draft.tokens[node] for node in path)
    last = path[-1] if path else ROOT
    return Verdict(path, (*tokens, chance.draw(law_of_row(last + 1, tokens), start + len(tokens))))
