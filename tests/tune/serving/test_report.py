from __future__ import annotations

from pathlib import Path

from forerun.tune.serving.report import engine_system, report_of, script, summary

from .racing import Script, knobs, tuned

A, B = knobs("a", settings={"--x": 1}), knobs("b", 2)


def test_the_winner_is_told_with_its_ratio_and_who_was_left_out(tmp_path: Path) -> None:
    told = list(summary(tuned(tmp_path, Script({"a": 0.5}, fails={"b": "no memory."}), [A, B])))

    assert told[0].startswith("Tried: 2 settings beside off, in ")
    assert told[1].startswith("Won: a, 2.00 (2.00 to 2.00) x plain decoding in ")
    assert told[-1] == "Left out: b (no memory)."


def test_off_is_told_with_the_fastest_of_the_others(tmp_path: Path) -> None:
    told = list(summary(tuned(tmp_path, Script({"a": 1.25}), [A])))

    assert told[1].startswith("Off won: the fastest of the others, a, came to 0.80 (0.80 to 0.80) x plain decoding")


def test_a_load_at_which_off_is_faster_is_named(tmp_path: Path) -> None:
    told = list(summary(tuned(tmp_path, Script({"a": {1: 0.4, 4: 1.25}}), [A], loads=(1, 4))))

    assert any("2.50 (2.50 to 2.50) at 1, 0.80 (0.80 to 0.80) at 4; at 4 off is faster." in one for one in told)


def test_the_report_and_the_file_hold_the_settings_and_what_was_measured(tmp_path: Path) -> None:
    outcome = tuned(tmp_path, Script({"a": 0.5}), [A])
    system = engine_system(outcome, {"engine": "scripted"}, {"cores": 2})

    assert report_of(outcome)["best_by_load"] == {"1": "a"}
    assert (system["name"], system["settings"], system["tuned_on"]) == ("a", {"--x": 1}, {"cores": 2})
    assert round(system["measured"]["speedup"], 2) == 2
    assert system["measured"]["acceptance"] == 0.5


def test_the_script_sets_the_variables_and_passes_arguments_on() -> None:
    told = script("mine", ["vllm", "serve", "a model"], {"SPACE": "1 2"})

    assert told.startswith("#!/bin/sh\n# mine, written by forerun tune\n")
    assert "export SPACE='1 2'\n" in told
    assert told.endswith("exec vllm serve 'a model' \"$@\"\n")
