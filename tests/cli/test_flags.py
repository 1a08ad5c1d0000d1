from __future__ import annotations

import inspect
from dataclasses import dataclass, fields
from typing import Any, get_args

from forerun.cli.flags import (
    OPEN,
    REQUEST,
    flag,
    recipe_flags,
    recipe_of,
    request_flags,
    request_of,
    spelling,
    takes,
)
from forerun.engine.options import Options

# functions, and ids that a reader of text doesn't know
UNWRITTEN = {"processors", "stop_token_ids"}


def test_every_option_of_a_request_that_can_be_written_has_a_flag() -> None:
    assert {field.name for field in fields(Options)} - set(REQUEST) == UNWRITTEN
    assert [one.name for one in request_flags()] == [
        field.name for field in fields(Options) if field.name not in UNWRITTEN
    ]


def test_flags_that_a_checkpoint_may_answer_are_left_open_and_the_others_have_the_defaults_of_the_options() -> None:
    defaults = {one.name: one.default for one in request_flags()}
    left_open = {name for name in OPEN if defaults.pop(name) is None}

    assert left_open == OPEN
    assert {"max_new_tokens", "temperature", "stop", "repetition_penalty", "do_sample"} < left_open
    assert Options(**defaults) == Options()


def test_help_tells_who_answers_a_flag_that_is_left_open() -> None:
    (limit,) = request_flags(only=("max_new_tokens",))

    assert get_args(limit.annotation)[1].show_default == "the checkpoint's, else 128"


def test_do_sample_is_written_as_sample() -> None:
    assert [_written(one) for one in request_flags(only=("do_sample",))] == ["--sample/--no-sample"]


def test_flags_can_be_left_out() -> None:
    assert "seed" not in [one.name for one in request_flags(without=("seed",))]


def test_a_request_is_picked_from_all_arguments_without_what_was_not_given() -> None:
    given = {"temperature": 0.5, "seed": None, "stop": ["a"], "either__k": "3"}

    assert request_of(given) == {"temperature": 0.5, "stop": ["a"]}


def test_a_switch_that_is_on_can_be_turned_off_and_one_that_is_off_only_on() -> None:
    assert _written(flag("speculate", bool, True, "", "")) == "--speculate/--no-speculate"
    assert _written(flag("raw_text", bool, False, "", "")) == "--raw-text"
    assert _written(flag("either__tree", bool | None, None, "", "", "tree")) == "--tree/--no-tree"


def test_takes_adds_flags_after_a_commands_own_arguments() -> None:
    @takes(flag("k", int, 3, "", ""))
    def command(model: str, **given: Any) -> None:
        pass

    assert list(inspect.signature(command).parameters) == ["model", "k"]


def test_a_flag_is_written_with_dashes() -> None:
    assert spelling("max_new_tokens") == "--max-new-tokens"


def _written(parameter: inspect.Parameter) -> str:
    return str(get_args(parameter.annotation)[1].default)


@dataclass(frozen=True)
class Brew:
    cups: int = 2
    strength: float = 0.5


def test_a_recipe_becomes_flags_and_comes_back_from_what_was_given() -> None:
    flags = recipe_flags(Brew, {"cups": "How many.", "strength": "How strong."})

    assert [(one.name, one.default, _written(one)) for one in flags] == [
        ("cups", 2, "--cups"),
        ("strength", 0.5, "--strength"),
    ]
    assert recipe_of(Brew, {"cups": 3, "strength": 0.7, "other": 1}) == Brew(3, 0.7)
