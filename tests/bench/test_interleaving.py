from collections import Counter

import pytest

from forerun.bench.interleaving import WARM_UP_TOKENS, measure_interleaved, order

from .samples import Scripted

PROMPTS = [[number] for number in range(1, 7)]


def test_everybody_answers_every_prompt_once_after_a_warm_up_on_the_first() -> None:
    one, two = Scripted("plain"), Scripted("lookup")
    measurements = measure_interleaved([one, two], PROMPTS, 8)
    for backend in (one, two):
        assert backend.asked == [PROMPTS[0], *PROMPTS]
        assert [sample.ids[0] for sample in measurements.samples[backend.name]] == [1, 2, 3, 4, 5, 6]


def test_the_warm_up_is_short_and_not_counted() -> None:
    lengths: list[int] = []

    class Counting(Scripted):
        def answer(self, ids, max_new_tokens):  # type: ignore[no-untyped-def]
            lengths.append(max_new_tokens)
            return super().answer(ids, max_new_tokens)

    measurements = measure_interleaved([Counting("plain")], PROMPTS[:1], 100)
    assert lengths == [WARM_UP_TOKENS, 100]
    assert len(measurements.samples["plain"]) == 1


def test_the_order_changes_so_that_everybody_runs_everywhere_alike() -> None:
    backends = [Scripted(name) for name in "abc"]
    places = [[one.name for one in order(backends, number)] for number in range(6)]
    assert places[:3] == [["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"]]
    for place in range(3):
        assert Counter(turn[place] for turn in places) == {"a": 2, "b": 2, "c": 2}
    followers = Counter((turn[i], turn[i + 1]) for turn in places for i in range(2))
    assert set(followers.values()) == {2}
    assert len(followers) == 6


def test_whoever_fails_drops_out_and_the_others_go_on() -> None:
    plain, peer = Scripted("plain"), Scripted("peer:plain", fails_at=[4])
    measurements = measure_interleaved([plain, peer], PROMPTS, 8)
    assert measurements.failures == {"peer:plain": "peer peer:plain: out of memory"}
    assert list(measurements.samples) == ["plain"]
    assert len(measurements.samples["plain"]) == len(PROMPTS)
    assert len(peer.asked) == 4


def test_whoever_fails_in_the_warm_up_is_not_asked_again() -> None:
    peer = Scripted("peer:plain", fails_at=[1])
    measurements = measure_interleaved([Scripted("plain"), peer], PROMPTS, 8)
    assert "peer:plain" in measurements.failures
    assert len(peer.asked) == 1


def test_each_prompt_is_told() -> None:
    ticks: list[None] = []
    measure_interleaved([Scripted("plain"), Scripted("lookup")], PROMPTS, 8, lambda: ticks.append(None))
    assert len(ticks) == len(PROMPTS)


def test_two_methods_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two methods are called lookup"):
        measure_interleaved([Scripted("plain"), Scripted("lookup"), Scripted("lookup")], PROMPTS, 8)


def test_answers_of_one_token_can_not_be_timed() -> None:
    with pytest.raises(ValueError, match="at least 2 to be timed, got 1"):
        measure_interleaved([Scripted("plain")], PROMPTS, 1)


def test_a_race_of_nobody_or_about_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one method and one prompt"):
        measure_interleaved([], PROMPTS, 8)
    with pytest.raises(ValueError, match="at least one method and one prompt"):
        measure_interleaved([Scripted("plain")], [], 8)
