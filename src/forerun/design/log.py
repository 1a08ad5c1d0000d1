"""The token log: the target's answers, so that a draft's rounds are known without running the target.

Greedy decoding emits the log with any draft, so a draft is right exactly where its own greedy token is the log's. It reads
an answer once; its prediction after each token stands for its draft there. (Yan et al., arXiv 2402.01528, replay a target's
stored output in the same way.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.drafter import Drafter
from ..core.identity import Identity
from ..drafters.vocabulary import frequent
from ..jsonl import read_lines
from .throughput import Rounds

SHORTEST_PROMPT = 3  # what a drafter can read after


@dataclass(frozen=True, slots=True)
class LoggedAnswer:
    """ids[start:] is the target's greedy answer."""

    ids: tuple[int, ...]
    start: int

    @property
    def answer(self) -> tuple[int, ...]:
        return self.ids[self.start :]


@dataclass(frozen=True, slots=True)
class DraftOnLog:
    """A draft on the log. right: by answer, whether its greedy token was the target's, after each token from the first on.

    surprise: nats an answer token, None where its head gives none to some of them.
    """

    right: tuple[tuple[bool, ...], ...]
    surprise: float | None

    @property
    def acceptance(self) -> float:
        """The share of right tokens, given the target's own before them."""
        told = [one for answer in self.right for one in answer]
        return sum(told) / len(told)

    def rounds(self, k: int) -> Rounds:
        """The rounds of greedy decoding with drafts of k tokens."""
        counts = Counter(emitted for answer in self.right for emitted in walk(answer, k))
        total = sum(counts.values())
        return Rounds(k, tuple(counts[n] / total for n in range(1, k + 2)))


def walk(right: Sequence[bool], k: int) -> list[int]:
    """How many tokens each round emits; right[i]: whether the draft has token i, given all before it.

    The last round ends with the answer.
    """
    emitted: list[int] = []
    place = 0
    while place < len(right):
        run = 0
        while run < min(k, len(right) - place) and right[place + run]:
            run += 1
        emitted.append(min(run + 1, len(right) - place))
        place += emitted[-1]
    return emitted


def read_log(path: Path, target: Identity, limit: int) -> list[LoggedAnswer]:
    """Answers of `forerun train answers`, at most `limit` of them, evenly over the file.

    Answers of one token, and to prompts of fewer than 3, are of no use and left out. Raises ValueError on a line that is
    no such answer, is sampled, or another model's, and where none is left.
    """
    found: list[LoggedAnswer] = []
    for number, entry in read_lines(path):
        try:
            one = _logged(entry, target)
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from error
        if one.start >= SHORTEST_PROMPT and len(one.answer) > 1:
            found.append(one)
    if not found:
        raise ValueError(
            f"{path} holds no answer of at least two tokens; write some with: forerun train answers MODEL PROMPTS -o {path}"
        )
    count = min(limit, len(found))
    return [found[number * len(found) // count] for number in range(count)]


def _logged(entry: dict[str, Any], target: Identity) -> LoggedAnswer:
    lists: list[list[int]] = []
    for ids in (entry.get("prompt_ids"), entry.get("answer_ids")):
        if not isinstance(ids, list) or not all(isinstance(one, int) and 0 <= one < target.vocab_size for one in ids):
            raise ValueError(
                f'a log has "prompt_ids" and "answer_ids", token ids in 0..{target.vocab_size - 1}, as train answers writes '
                "them"
            )
        lists.append(ids)
    made_by = entry.get("made_by")
    if isinstance(made_by, dict):
        if made_by.get("model", target.weights) != target.weights:
            raise ValueError(
                f"another model gave this answer (weights {made_by['model']}, the target's are {target.weights}); log the "
                "target's own"
            )
        if made_by.get("temperature"):
            raise ValueError(f"this answer was sampled at temperature {made_by['temperature']}; log greedy answers")
    prompt, answer = lists
    return LoggedAnswer((*prompt, *answer), len(prompt))


async def compare_with_log(drafter: Drafter, logged: LoggedAnswer) -> AsyncGenerator[tuple[list[bool], float | None]]:
    """Whether the draft is right after each token of the answer, and its nats for the whole answer."""
    rows = await drafter.read(logged.ids[:-1], logged.start)
    laws = rows.logits.float().log_softmax(-1)
    said: list[int] = laws.argmax(-1).tolist()
    nats = [-float(laws[i, token]) for i, token in enumerate(logged.answer) if token < laws.shape[-1]]
    # the first token comes with the prompt's forward, undrafted
    right = [one == other for one, other in zip(said, logged.answer, strict=True)][1:]
    known = len(nats) == len(logged.answer) and all(value < float("inf") for value in nats)
    yield right, sum(nats) if known else None


def coverage(log: Sequence[LoggedAnswer], size: int, vocabulary: int) -> float:
    """The share of the answers' tokens that are among the `size` most frequent: ranked on one half, counted on the other."""
    halves = log[::2], log[1::2] or log[::2]
    kept = set(frequent([token for one in halves[0] for token in one.answer], size, vocabulary))
    counted = [token for one in halves[1] for token in one.answer]
    return sum(token in kept for token in counted) / len(counted)
