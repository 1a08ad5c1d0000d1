from __future__ import annotations

from pathlib import Path

import pytest

from forerun.tune.journal import Journal
from forerun.tune.serving.asking import EngineFailed
from forerun.tune.serving.knobs import OFF, Knobs
from forerun.tune.serving.race import Race, Racing, group_of, group_size

from .racing import ABOUT, PROMPTS, Script, knobs

A, B = knobs("a"), knobs("b", 2)


def raced(
    folder: Path, script: Script, contenders: list[Knobs], loads: tuple[int, ...] = (1,), most: int | None = 4
) -> Race:
    with Journal(folder / "log.jsonl", ABOUT, script.now) as journal:
        return Racing(script.field(), journal, loads).run("t", contenders, PROMPTS, until=60.0, most=most)


def test_every_candidate_answers_the_same_prompts_at_every_load(tmp_path: Path) -> None:
    script = Script()

    raced(tmp_path, script, [A, B], (1, 4), most=2)

    groups = {
        name: [(load, prompts) for one, load, prompts in script.asked if one == name] for name in ("off", "a", "b")
    }
    assert groups["off"] == groups["a"] == groups["b"]
    assert [load for load, _ in groups["a"]] == [1, 4, 1, 4]


def test_the_first_to_answer_changes_from_heat_to_heat(tmp_path: Path) -> None:
    script = Script()

    raced(tmp_path, script, [A, B], most=3)

    assert {name for name, _, _ in script.asked[::3]} == {"off", "a", "b"}


def test_loads_weigh_the_same_however_much_is_answered_there(tmp_path: Path) -> None:
    race = raced(tmp_path, Script({"a": {1: 0.5, 4: 1.0}}), [A], (1, 4))

    figure = race.whole.ratio(A, OFF)
    assert figure is not None
    # 2 of off's times in 1.5
    assert figure.value == pytest.approx(4 / 3, rel=1e-3)
    assert [race.by_load[load].speedup(A) for load in (1, 4)] == pytest.approx([2.0, 1.0])


def test_who_is_slower_at_every_load_drops_out_and_its_server_ends(tmp_path: Path) -> None:
    script = Script({"a": 0.5, "b": 2.0})

    race = raced(tmp_path, script, [A, B], (1, 4), most=6)

    assert race.still_in == [OFF, A]
    assert script.closed == ["b"]
    assert sum(name == "b" for name, _, _ in script.asked) == 8
    assert race.whole.speedup(B) == pytest.approx(0.5, rel=1e-3)


def test_who_is_faster_at_one_load_stays(tmp_path: Path) -> None:
    race = raced(tmp_path, Script({"a": {1: 0.5, 4: 1.0}, "b": {1: 1.5, 4: 0.7}}), [A, B], (1, 4))

    assert race.still_in == [OFF, A, B]


def test_a_failure_in_the_middle_keeps_what_was_measured(tmp_path: Path) -> None:
    class Failing(Script):
        def now(self) -> float:
            if sum(name == "b" for name, _, _ in self.asked) >= 2:
                self.fails["b"] = "b ended in the middle"
            return super().now()

    race = raced(tmp_path, Failing({"a": 0.5}), [A, B])

    assert race.failed == {"b": "b ended in the middle"}
    assert race.whole.winner == A
    assert len(race.by_load[1].samples["b"]) == 2


def test_a_failure_of_off_is_the_runs(tmp_path: Path) -> None:
    with pytest.raises(EngineFailed, match="gone"):
        raced(tmp_path, Script(fails={"off": "gone"}), [A])


def test_where_not_all_can_be_open_each_answers_several_heats_at_an_opening(tmp_path: Path) -> None:
    script = Script({"a": 0.5, "b": 0.6}, most=2)

    raced(tmp_path, script, [A, B], most=4)

    assert sorted(script.opened) == ["a", "b", "off"]
    assert [name for name, _, _ in script.asked[:4]] == ["off"] * 4


def test_what_drafts_from_earlier_answers_is_never_asked_again_by_the_same_server(tmp_path: Path) -> None:
    script = Script()

    raced(tmp_path, script, [knobs("pool", remembers=True)], most=15)

    assert script.opened.count("pool") == 2
    assert script.opened.count("off") == 1


def test_what_drafts_from_earlier_answers_needs_a_prompt_for_each_request(tmp_path: Path) -> None:
    race = raced(tmp_path, Script(), [knobs("pool", remembers=True), A], (1, 8))

    assert race.failed == {"pool": "it drafts from earlier answers, so 8 requests at once need more prompts"}


def test_texts_are_compared_with_those_of_off() -> None:
    race = Race.of([A], [1])
    for one, texts in ((OFF, ["x", "y", "z", "w"]), (A, ["x", "y", "-", "w"])):
        sample = {"decoded": 4, "seconds": 1.0, "rounds": 0, "drafted": 0, "accepted": 0}
        race.take(one, 1, {"sample": {**sample, "draft_seconds": 0.0, "verify_seconds": 0.0}, "texts": texts})

    assert race.equal_texts(A) == 0.75
    assert race.equal_texts(B) is None


def test_a_heat_that_is_known_is_not_run_again(tmp_path: Path) -> None:
    raced(tmp_path, Script(), [A])
    again = Script()

    race = raced(tmp_path, again, [A])

    assert again.asked == []
    assert race.heats == 4


def test_groups_go_through_the_prompts_and_begin_again() -> None:
    assert (group_size(1), group_size(8)) == (1, 16)
    assert group_of(["x", "y", "z"], 1, 1, (1,)) == ["y"]
    assert group_of(["x", "y", "z"], 3, 1, (1,)) == ["x"]
    prompts = [str(number) for number in range(20)]
    assert [group_of(prompts, 0, load, (1, 2)) for load in (1, 2)] == [["0"], ["1", "2", "3", "4"]]
    assert [group_of(prompts, 1, load, (1, 2)) for load in (1, 2)] == [["5"], ["6", "7", "8", "9"]]
