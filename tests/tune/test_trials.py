from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from forerun.tune.candidates import OFF, Candidate, DrafterConfig
from forerun.tune.journal import Journal
from forerun.tune.machine import Sample
from forerun.tune.trials import FEWEST_HEATS, Standings, run_trials

from .tuning import Clock

LOOKUP = Candidate(DrafterConfig("lookup 1..3", "lookup", "lookup"), "fixed", {"k": 4})
RULE = Candidate(LOOKUP.config, "cost")
EXIT = Candidate(DrafterConfig("exit 3", "exit", "self", {"exit_layer": 3}), "fixed", {"k": 4})
BY_NAME = {one.name: one for one in (OFF, LOOKUP, RULE, EXIT)}
PROMPTS = [[1], [2], [3]]
Answer = Callable[[Candidate, Sequence[int]], Sample]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def journal(tmp_path: Path, clock: Clock) -> Iterator[Journal]:
    with Journal(tmp_path / "log.jsonl", {}, clock) as opened:
        yield opened


def sample(seconds: float) -> Sample:
    return Sample(10, seconds, 10, 0, 0, 0.0, seconds)


def paced(seconds: Mapping[str, Sequence[float]], clock: Clock, asked: list[tuple[str, int]]) -> Answer:
    """Each candidate's times one after the other, again and again."""
    turns = dict.fromkeys(seconds, 0)

    def answer(candidate: Candidate, ids: Sequence[int]) -> Sample:
        asked.append((candidate.name, ids[0]))
        times = seconds[candidate.name]
        turns[candidate.name] += 1
        clock.seconds += 1
        return sample(times[(turns[candidate.name] - 1) % len(times)])

    return answer


def trials(
    journal: Journal,
    clock: Clock,
    times: Mapping[str, Sequence[float]],
    until: float = 100,
    most: int | None = None,
    asked: list[tuple[str, int]] | None = None,
) -> Standings:
    answer = paced(times, clock, [] if asked is None else asked)
    others = [BY_NAME[name] for name in times if name != OFF.name]
    return run_trials(others, PROMPTS, answer, journal, stage="trial", until=until, most=most)


def test_the_fastest_wins(journal: Journal, clock: Clock) -> None:
    found = trials(journal, clock, {OFF.name: [1.0], LOOKUP.name: [0.8], EXIT.name: [0.5]})

    assert found.winner == EXIT
    figure = found.ratio(EXIT, OFF)
    assert figure is not None
    assert figure.value == pytest.approx(2.0)


def test_nobody_leaves_before_the_fewest_heats(journal: Journal, clock: Clock) -> None:
    found = trials(journal, clock, {OFF.name: [1.0], LOOKUP.name: [0.8], EXIT.name: [0.5]})

    assert found.out == {LOOKUP.name: FEWEST_HEATS}
    assert found.heats == FEWEST_HEATS


def test_those_surely_slower_leave_and_the_others_go_on(journal: Journal, clock: Clock) -> None:
    asked: list[tuple[str, int]] = []
    times = {OFF.name: [1.0], LOOKUP.name: [0.5, 0.6], RULE.name: [0.6, 0.5], EXIT.name: [0.9]}

    found = trials(journal, clock, times, asked=asked, until=40)

    assert found.out == {EXIT.name: FEWEST_HEATS}
    assert len(found.samples[EXIT.name]) == FEWEST_HEATS
    assert len(found.samples[LOOKUP.name]) == found.heats > FEWEST_HEATS


def test_a_tie_goes_to_the_simpler_one(journal: Journal, clock: Clock) -> None:
    found = trials(journal, clock, {OFF.name: [1.0], RULE.name: [0.5, 0.6], LOOKUP.name: [0.6, 0.5]}, until=30)

    assert found.winner == LOOKUP


def test_the_simpler_one_loses_where_it_is_surely_slower(journal: Journal, clock: Clock) -> None:
    found = trials(journal, clock, {OFF.name: [1.0], RULE.name: [0.5, 0.52], LOOKUP.name: [0.6, 0.61]}, until=30)

    assert found.winner == RULE


def test_a_tie_with_off_goes_to_off(journal: Journal, clock: Clock) -> None:
    found = trials(journal, clock, {OFF.name: [1.0, 1.0], LOOKUP.name: [0.7, 1.25]}, until=30)

    assert found.fastest == LOOKUP
    assert found.winner == OFF


def test_a_simpler_one_that_may_be_no_faster_than_off_does_not_win_a_tie(journal: Journal, clock: Clock) -> None:
    times = {OFF.name: [1.0], EXIT.name: [0.8], LOOKUP.name: [0.5, 1.2, 0.6, 1.2]}

    found = trials(journal, clock, times, until=30)

    assert LOOKUP in found.still_in
    assert found.winner == EXIT


def test_one_that_was_lucky_does_not_stand_in_the_way_of_one_that_is_surely_faster(
    journal: Journal, clock: Clock
) -> None:
    times = {OFF.name: [1.0], EXIT.name: [0.8], LOOKUP.name: [0.3, 1.6, 0.4, 0.6]}

    found = trials(journal, clock, times, until=15)

    assert found.fastest == LOOKUP
    assert found.winner == EXIT


def test_off_wins_over_slower_ones(journal: Journal, clock: Clock) -> None:
    found = trials(journal, clock, {OFF.name: [1.0], LOOKUP.name: [1.2], EXIT.name: [1.1]})

    assert found.winner == OFF
    assert found.still_in == [OFF]


def test_without_another_one_nothing_is_run(journal: Journal, clock: Clock) -> None:
    found = trials(journal, clock, {OFF.name: [1.0]})

    assert (found.heats, found.winner) == (0, OFF)


def test_answers_that_end_at_once_tell_nothing(journal: Journal, clock: Clock) -> None:
    empty = Sample(0, 0.0, 0, 0, 0, 0.0, 0.0)

    found = run_trials([LOOKUP], PROMPTS, lambda one, ids: empty, journal, stage="trial", until=10, most=5)

    assert found.winner == OFF


def test_the_order_changes_from_heat_to_heat_and_prompts_come_in_turn(journal: Journal, clock: Clock) -> None:
    asked: list[tuple[str, int]] = []

    trials(journal, clock, {OFF.name: [1.0], LOOKUP.name: [0.9, 1.1]}, until=0, asked=asked)

    names = [name for name, _ in asked]
    assert names[:4] == [OFF.name, LOOKUP.name, LOOKUP.name, OFF.name]
    assert [prompt for _, prompt in asked] == [1, 1, 2, 2, 3, 3, 1, 1]


def test_heats_end_with_the_time_but_not_before_the_fewest(journal: Journal, clock: Clock) -> None:
    found = trials(journal, clock, {OFF.name: [1.0], LOOKUP.name: [0.9, 1.1]}, until=0)

    assert found.heats == FEWEST_HEATS


def test_heats_go_on_while_two_cannot_be_told_apart(journal: Journal, clock: Clock) -> None:
    found = trials(journal, clock, {OFF.name: [1.0], LOOKUP.name: [0.9, 1.1]}, until=50)

    assert found.heats == 25


def test_no_more_heats_than_wanted(journal: Journal, clock: Clock) -> None:
    assert trials(journal, clock, {OFF.name: [1.0], LOOKUP.name: [0.5]}, most=7).heats == 7


def test_a_later_run_takes_the_heats_that_are_known(journal: Journal, clock: Clock, tmp_path: Path) -> None:
    times = {OFF.name: [1.0], LOOKUP.name: [0.5, 0.6], RULE.name: [0.6, 0.5], EXIT.name: [0.9]}
    first = trials(journal, clock, times, until=30)
    asked: list[tuple[str, int]] = []

    with Journal(tmp_path / "log.jsonl", {}, clock) as later:
        again = trials(later, clock, times, until=30, asked=asked)

    assert asked == []
    assert (again.samples, again.out, again.winner) == (first.samples, first.out, first.winner)


def test_heats_of_other_candidates_are_not_taken(journal: Journal, clock: Clock) -> None:
    trials(journal, clock, {OFF.name: [1.0], LOOKUP.name: [0.5]}, until=0)

    found = trials(journal, clock, {OFF.name: [1.0], LOOKUP.name: [0.5], EXIT.name: [0.4]}, until=0)

    assert len(found.samples[EXIT.name]) == len(found.samples[OFF.name]) == FEWEST_HEATS
    assert found.winner == EXIT


def test_each_heat_is_told(journal: Journal, clock: Clock) -> None:
    heats: list[int] = []
    answer = paced({OFF.name: [1.0], LOOKUP.name: [0.5]}, clock, [])

    run_trials([LOOKUP], PROMPTS, answer, journal, stage="t", until=0, tick=lambda now: heats.append(now.heats))

    assert heats == [1, 2, 3, 4]
