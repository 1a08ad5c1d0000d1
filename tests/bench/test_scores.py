import pytest

from forerun.bench.scores import Scores
from forerun.core.values import Timing

from .samples import sample, stats

PLAIN = [sample(10, 1.0), sample(10, 2.0), sample(10, 4.0)]


def test_tokens_a_second_are_the_median_over_the_prompts() -> None:
    figure = Scores(PLAIN, PLAIN, PLAIN).tokens_per_second
    assert figure is not None
    assert figure.value == 5


def test_the_total_rate_is_all_tokens_over_all_seconds() -> None:
    figure = Scores(PLAIN, PLAIN, PLAIN).total_tokens_per_second
    assert figure is not None
    assert figure.value == pytest.approx(30 / 7)


def test_the_first_token_stands_apart() -> None:
    slow_start = [sample(10, 1.0, first=5.0)] * 3
    scores = Scores(slow_start, PLAIN, PLAIN)
    assert scores.as_dict()["first_token_seconds"] == 5
    assert scores.as_dict()["tokens_per_second"] == 10


def test_the_speedup_is_paired_by_prompt() -> None:
    twice = [sample(10, one.decode_seconds / 2) for one in PLAIN]
    scores = Scores(twice, PLAIN, PLAIN).as_dict()
    assert scores["speedup"] == 2
    assert scores["speedup_interval"] == [2, 2]
    assert scores["total_speedup"] == 2


def test_a_speedup_on_one_long_prompt_moves_the_total_and_not_the_median() -> None:
    mixed = [sample(10, 1.0), sample(10, 2.0), sample(10, 1.0)]
    scores = Scores(mixed, PLAIN, PLAIN).as_dict()
    assert scores["speedup"] == 1
    assert scores["total_speedup"] == pytest.approx(7 / 4)


def test_a_peer_is_compared_with_its_own_plain_decoding_and_with_ours() -> None:
    peer_plain = [sample(10, 2 * one.decode_seconds) for one in PLAIN]
    peer_lookup = [sample(10, one.decode_seconds) for one in PLAIN]
    scores = Scores(peer_lookup, peer_plain, PLAIN).as_dict()
    assert scores["total_speedup"] == 2
    assert scores["against_plain"] == 1


def test_an_answer_over_with_its_first_token_has_no_rate() -> None:
    short = [sample(0, 0.0), sample(10, 1.0)]
    scores = Scores(short, short, short).as_dict()
    assert scores["tokens_per_second"] == 10
    assert scores["speedup"] == 1
    assert scores["decoded_tokens"] == 10


def test_where_every_answer_is_that_short_there_are_no_rates() -> None:
    short = [sample(0, 0.0)]
    scores = Scores(short, short, short).as_dict()
    assert scores["tokens_per_second"] is scores["tokens_per_second_interval"] is scores["speedup"] is None
    assert scores["total_speedup"] is scores["against_plain"] is None


def test_equality_is_counted_by_prompt() -> None:
    parting = [sample(10, 1.0), sample(10, 2.0, text=1), sample(9, 4.0)]
    scores = Scores(parting, PLAIN, PLAIN).as_dict()
    assert (scores["identical"], scores["identical_prompts"], scores["prompts"]) == (False, 1, 3)
    assert Scores(PLAIN, PLAIN, PLAIN).as_dict()["identical"] is True


def test_without_a_baseline_nothing_is_said_about_speedup_and_equality() -> None:
    scores = Scores(PLAIN, None, PLAIN).as_dict()
    assert scores["speedup"] is scores["total_speedup"] is scores["identical"] is scores["identical_prompts"] is None
    assert scores["tokens_per_second"] == 5


def test_acceptance_is_of_all_prompts_together() -> None:
    samples = [sample(3, 1.0, stats=stats(drafted=3, accepted=2)), sample(1, 1.0, stats=stats(drafted=3, accepted=0))]
    told = Scores(samples, samples, samples).as_dict()["acceptance"]
    assert told["tokens_per_round"] == 2
    assert told["drafted_per_round"] == 3
    assert told["acceptance"] == pytest.approx(1 / 3)
    assert told["discard_rate"] == 1
    assert told["verification_rate"] == 0.5


def test_merging_leaves_the_samples_as_they_are() -> None:
    samples = [sample(3, 1.0, stats=stats(3, 2))] * 2
    assert Scores(samples, None, samples).as_dict() == Scores(samples, None, samples).as_dict()


def test_the_time_is_split_into_its_parts_and_the_rest() -> None:
    timing = Timing(draft=0.2, forward=0.5, law=0.03, keep=0.02)
    samples = [sample(3, 1.0, stats=stats(3, 2, timing))] * 2
    assert Scores(samples, samples, samples).as_dict()["seconds"] == pytest.approx(
        {"draft": 0.4, "verify": 1.0, "law": 0.06, "keep": 0.04, "other": 0.5}
    )


def test_a_peer_tells_neither_acceptance_nor_where_its_time_went() -> None:
    scores = Scores(PLAIN, PLAIN, PLAIN).as_dict()
    assert scores["acceptance"] is scores["seconds"] is None


def test_the_peak_memory_is_the_highest_of_all_prompts() -> None:
    assert Scores(PLAIN, PLAIN, PLAIN).as_dict()["peak_memory_mb"] == 100
