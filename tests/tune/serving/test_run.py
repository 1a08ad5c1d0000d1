from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from forerun.tune.serving.asking import EngineFailed
from forerun.tune.serving.knobs import OFF, Knobs
from forerun.tune.serving.run import FEWEST_JUDGED, ServingSetup, Wanted, about_prompts, split_prompts

from .racing import PROMPTS, Script, Scripted, knobs, tuned

A, B, BETTER = knobs("a"), knobs("b", 2), knobs("a better", family="a")


def test_the_fastest_setting_wins_and_is_judged_on_prompts_that_it_was_not_tuned_on(tmp_path: Path) -> None:
    script = Script({"a": 0.5, "b": 0.8})

    found = tuned(tmp_path, script, [A, B])

    tuned_on, held = split_prompts(PROMPTS, 0)
    assert found.winner == found.tried == A
    assert found.held_out is not None
    assert found.held_out.heats >= FEWEST_JUDGED
    last = {prompt for name, _, prompts in script.asked[-2 * FEWEST_JUDGED :] for prompt in prompts}
    assert last <= set(held)
    assert not last & set(tuned_on)


def test_off_wins_where_nothing_is_clearly_faster(tmp_path: Path) -> None:
    found = tuned(tmp_path, Script({"a": 1.1, "b": 1.0}), [A, B])

    assert (found.winner, found.tried, found.held_out) == (OFF, OFF, None)


def test_off_wins_where_the_judgement_does_not_confirm_the_trials(tmp_path: Path) -> None:
    held = split_prompts(PROMPTS, 0)[1]

    class Lucky(Script):
        """Fast on the prompts that are tuned on."""

        def now(self) -> float:
            self.seconds["a"] = 1.2 if self.asked and self.asked[-1][2][0] in held else 0.5
            return super().now()

    script = Lucky({"a": 0.5})
    found = tuned(tmp_path, script, [A])

    assert found.tried == A
    assert found.winner == OFF


def test_settings_near_the_best_are_tried_next(tmp_path: Path) -> None:
    found = tuned(tmp_path, Script({"a": 0.6, "a better": 0.4, "b": 0.7}), [A, B], Scripted({"a": [BETTER]}))

    assert found.winner == BETTER
    assert found.second is not None
    assert BETTER in found.second.contenders
    assert BETTER not in found.first.contenders


def test_fewer_settings_are_near_where_an_opening_takes_long(tmp_path: Path) -> None:
    many = [knobs(f"a {number}") for number in range(12)]
    counts = []
    for opening in (0.1, 10.0):
        folder = tmp_path / str(opening)
        folder.mkdir()
        found = tuned(folder, Script({"a": 0.6}, opening=opening), [A], Scripted({"a": many}))
        assert found.second is not None
        counts.append(len(found.second.contenders))

    assert counts[0] > counts[1] >= 3


def test_no_more_settings_are_tried_once_their_time_is_over(tmp_path: Path) -> None:
    found = tuned(tmp_path, Script({"a": 0.5}, opening=60.0), [A], Scripted({"a": [BETTER]}))

    assert found.second is None
    assert found.winner == A


def test_a_failing_setting_is_left_out_with_its_reason(tmp_path: Path) -> None:
    script = Script({"a": 0.5}, fails={"b": "b has another vocabulary"})

    found = tuned(tmp_path, script, [A, B])

    assert found.winner == A
    assert found.failed == {"b": "b has another vocabulary"}


def test_a_failure_of_off_ends_the_run_and_the_rest_is_kept(tmp_path: Path) -> None:
    with pytest.raises(EngineFailed, match="off is gone"):
        tuned(tmp_path, Script(fails={"off": "off is gone"}), [A])

    script = Script({"a": 0.5})
    assert tuned(tmp_path, script, [A]).winner == A


def test_a_killed_run_goes_on_and_decides_what_an_undisturbed_one_does(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    seconds: Mapping[str, float] = {"a": 0.6, "a better": 0.4, "b": 0.7}
    engine = Scripted({"a": [BETTER]})
    whole = tuned(tmp_path / "whole", Script(seconds), [A, B], engine)
    for dies_at in (5, 9):
        with pytest.raises(KeyboardInterrupt):
            tuned(tmp_path, Script(seconds, dies_at=dies_at), [A, B], engine)
    last = Script(seconds)
    found = tuned(tmp_path, last, [A, B], engine)

    assert (found.winner, found.tried) == (whole.winner, whole.tried)
    assert found.first.by_load[1].samples == whole.first.by_load[1].samples


def test_what_is_best_at_each_load_is_merged_and_judged(tmp_path: Path) -> None:
    short, long = knobs("short", family="f"), knobs("long", family="f")
    merged = knobs("merged", 2)
    seen: list[Mapping[int, Knobs]] = []

    def merging(by_load: Mapping[int, Knobs]) -> Knobs:
        seen.append(dict(by_load))
        return merged

    script = Script(
        {"off": {1: 1.0, 4: 1.0}, "short": {1: 0.7, 4: 0.7}, "long": {1: 0.4, 4: 1.3}, "merged": {1: 0.4, 4: 0.7}}
    )
    found = tuned(tmp_path, script, [short, long], Scripted(merging=merging), loads=(1, 4))

    assert seen == [{1: long, 4: short}]
    assert found.winner == found.tried == merged


def test_at_a_load_where_nothing_pays_the_merged_setting_is_off(tmp_path: Path) -> None:
    seen: list[Mapping[int, Knobs]] = []

    def merging(by_load: Mapping[int, Knobs]) -> None:
        seen.append(dict(by_load))

    script = Script({"a": {1: 0.5, 4: 1.2}})
    tuned(tmp_path, script, [knobs("a", family="a")], Scripted(merging=merging), loads=(1, 4))

    assert [(load, one.name) for load, one in seen[0].items()] == [(1, "a"), (4, "off")]


def test_without_an_engine_nothing_else_is_tried(tmp_path: Path) -> None:
    from forerun.tune.journal import Journal
    from forerun.tune.serving.run import tune_engine

    script = Script({"a": 0.5})
    with Journal(tmp_path / "log.jsonl", {}, script.now) as journal:
        found = tune_engine(None, ServingSetup(Wanted(), 50.0), script.field(), journal, PROMPTS, [A])

    assert found.second is None
    assert found.winner == A


def test_too_few_prompts_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 4 different prompts, a third of which is held out; got 2"):
        split_prompts(["one", "two", "one"], 0)


@pytest.mark.parametrize("loads", [(), (0, 1), (2, 2)])
def test_loads_are_different_numbers_from_one_on(loads: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="--concurrency takes different numbers from 1 on"):
        ServingSetup(Wanted(), 10.0, loads)


def test_a_log_tells_prompts_apart() -> None:
    assert about_prompts(["a", "b"]) == about_prompts(["a", "b"])
    assert about_prompts(["a", "b"]) != about_prompts(["b", "a"])
