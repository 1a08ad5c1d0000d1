from __future__ import annotations

from pathlib import Path

import pytest

from forerun.tune.candidates import Chosen
from forerun.tune.setup import Setup, about_run, lines_of, split

from .tuning import PROMPTS, engine, setup


def test_a_third_is_held_out_and_nothing_is_in_both() -> None:
    tuned_on, held_out = split(PROMPTS, 0)

    assert (len(tuned_on), len(held_out)) == (6, 3)
    assert {*map(tuple, tuned_on), *map(tuple, held_out)} == set(map(tuple, PROMPTS))


def test_the_lines_that_ask_the_wanted_prompts_are_found_as_they_stand(tmp_path: Path) -> None:
    lines = [
        '{"prompt": "ab"}',
        "",
        '{"turns": ["c", "later"], "category": "qa"}',
        '{"prompt":  "ab"}',
        '{"prompt": "d"}',
    ]
    (tmp_path / "p.jsonl").write_text("\n".join(lines) + "\n")

    found = lines_of(tmp_path / "p.jsonl", [[97, 98], (99,)], lambda question: list(question.turns[0].encode()))

    assert found == [lines[0], lines[2]]


def test_the_seed_chooses_which() -> None:
    assert split(PROMPTS, 0) == split(PROMPTS, 0)
    assert split(PROMPTS, 0) != split(PROMPTS, 1)


def test_equal_prompts_count_once() -> None:
    tuned_on, held_out = split([*PROMPTS, *PROMPTS], 0)

    assert len(tuned_on) + len(held_out) == len(PROMPTS)


@pytest.mark.parametrize(("name", "value"), [("budget", 0.0), ("max_new_tokens", 1)])
def test_what_leaves_nothing_to_measure_is_refused(name: str, value: float, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=name.replace("_", "-")):
        setup(tmp_path, **{name: value})


def test_a_log_belongs_to_prompts_methods_and_tokens_but_to_no_budget(tmp_path: Path) -> None:
    on = engine()

    def about(prompts: list[list[int]] = PROMPTS, **changes: object) -> dict[str, object]:
        return about_run(setup(tmp_path, **changes), on, prompts)

    assert about() == about(budget=5.0)
    for other in (about(PROMPTS[1:]), about(chosen=Chosen(("lookup",))), about(max_new_tokens=8), about(seed=1)):
        assert other != about()


def test_the_whole_set_of_methods_is_tried_unless_some_are_chosen(tmp_path: Path) -> None:
    assert "hybrid" in Setup(Chosen(), 1.0, tmp_path / "sets").chosen.methods


def test_lines_stay_whole_whatever_stands_in_the_text(tmp_path: Path) -> None:
    lines = ['{"prompt": "a\u2028b"}', '{"prompt": "c"}']
    (tmp_path / "p.jsonl").write_bytes("\ufeff{}\r\n{}\r\n".format(*lines).encode())

    found = lines_of(tmp_path / "p.jsonl", [list("a\u2028b".encode())], lambda one: list(one.turns[0].encode()))

    assert found == lines[:1]
