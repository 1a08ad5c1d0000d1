"""Made-up answers for the tests of what is computed from them."""

from collections.abc import Sequence

from forerun.bench.backend import Backend, Batch, PeerFailed, Sample
from forerun.core.values import Draft, Round, Timing, Verdict
from forerun.engine.stats import Stats


def sample(
    decoded: int = 10, seconds: float = 1.0, text: int = 0, first: float = 0.1, stats: Stats | None = None
) -> Sample:
    """An answer of 1 + decoded tokens; another text has other tokens."""
    return Sample((text,) * (decoded + 1), 1, first, seconds, 100.0, stats)


def stats(drafted: int, accepted: int, timing: Timing = Timing()) -> Stats:  # noqa: B008
    """The prefill, and a round that drafted and accepted so many tokens."""
    draft = Draft((1,) * drafted, tuple(range(-1, drafted - 1)), (None,) * drafted)
    path = tuple(range(accepted))
    tokens = (1,) * (accepted + 1)
    prefill = Round((1,), Draft(), Verdict((), (1,)), 5, prefill=True, timing=Timing(forward=9.0))
    return Stats([prefill, Round(tokens, draft, Verdict(path, tokens), 6, timing=timing)])


class Scripted(Backend):
    """Answers with the prompt, at a pace of its own; fails at the prompts named. asked: the prompts in order."""

    several = True

    def __init__(self, name: str, pace: float = 0.1, baseline: str = "plain", fails_at: Sequence[int] = ()) -> None:
        self.name = name
        self.baseline = baseline
        self.about = {"drafter": {"name": name}}
        self.asked: list[list[int]] = []
        self._pace = pace
        self._fails_at = fails_at

    def answer(self, ids: Sequence[int], max_new_tokens: int) -> Sample:
        self.asked.append(list(ids))
        if len(self.asked) in self._fails_at:
            raise PeerFailed(f"peer {self.name}: out of memory")
        count = min(10, max_new_tokens)
        return Sample(tuple(ids[:1]) * count, 1, 0.05, self._pace * (count - 1), 50.0, stats(3, 2))

    def answer_all(self, prompts: Sequence[Sequence[int]], at_once: int, max_new_tokens: int) -> Batch:
        """In the time of one after the other, divided by how many are in flight."""
        found = [self.answer(ids, max_new_tokens) for ids in prompts]
        return Batch(tuple(one.ids for one in found), sum(one.decode_seconds for one in found) / at_once)
