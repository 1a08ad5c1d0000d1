"""Upper bounds: what a rule could reach if it knew in advance how many tokens the target will accept."""

from __future__ import annotations

from .simulate import Replay, Simulated


def agreeing(replay: Replay) -> Simulated:
    """Drafts exactly as long as they agree with the answer: nothing of a chain is discarded, no round can be longer."""
    return replay.planned([replay.agreed(number) for number in range(len(replay.trace.answers))])


def oracle(replay: Replay) -> Simulated:
    """The cheapest rounds under the replay's costs: no policy is faster on this trace."""
    return replay.planned([cheapest(replay, number) for number in range(len(replay.trace.answers))])


def cheapest(replay: Replay, number: int) -> list[int]:
    """The draft lengths of the cheapest way through an answer, found from its end; 0 at places that it doesn't pass.

    What is left to pay differs by whether the drafter has read the prompt.
    """
    accepted = replay.agreed(number)
    count = len(accepted) + 1
    rest = {read: [0.0] * (count + 1) for read in (True, False)}
    best = {read: [(0, read)] * count for read in (True, False)}
    for known in range(count - 1, 0, -1):
        agreed = accepted[known - 1]
        for read in (True, False):
            configs = [
                (seconds + rest[then][min(known + min(agreed, length) + 1, count)], length, then)
                for seconds, length, then in replay.configs(number, known, read)
            ]
            rest[read][known], length, then = min(configs)
            best[read][known] = length, then
    lengths = [0] * (count - 1)
    known, read = 1, False
    while known < count:
        lengths[known - 1], read = best[read][known]
        known += min(accepted[known - 1], lengths[known - 1]) + 1
    return lengths
