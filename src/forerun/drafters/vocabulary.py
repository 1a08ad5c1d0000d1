"""Which tokens a restricted draft vocabulary holds: the most frequent of a text, then the tokenizer's first.

A byte-pair tokenizer numbers its merges by frequency, so its low ids are a fair choice without a text.
Source: Zhao et al., FR-Spec, arXiv 2502.14856 (frequency-ranked draft vocabularies).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain, islice


def frequent(text: Sequence[int], size: int, vocabulary: int) -> tuple[int, ...]:
    """size token ids, ascending: those most frequent in text (the lower id among equals), filled up from 0 on.

    Raises ValueError unless 1 <= size <= vocabulary.
    """
    counts = Counter(text)
    return first_ranked(sorted(counts, key=lambda token: (-counts[token], token)), size, vocabulary)


def first_ranked(ranking: Iterable[int], size: int, vocabulary: int) -> tuple[int, ...]:
    """size token ids, ascending: the first of a ranking, filled up from 0 on. Raises what frequent raises."""
    if not 1 <= size <= vocabulary:
        raise ValueError(f"a draft vocabulary must hold 1..{vocabulary} tokens, got {size}")
    first = islice(dict.fromkeys(chain(ranking, range(vocabulary))), size)
    return tuple(sorted(first))
