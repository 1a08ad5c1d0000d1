from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from forerun.cli.values import is_switch, parse, words
from forerun.drafters.base import DRAFTERS
from forerun.errors import UnsupportedOption
from forerun.policies.base import POLICIES


@pytest.mark.parametrize(
    ("text", "annotation", "value"),
    [
        ("4", int, 4),
        ("-1", int, -1),
        ("0.5", float, 0.5),
        ("4", float, 4.0),
        ("threshold", str, "threshold"),
        ("4", str, "4"),
        ("smollm2", Any, "smollm2"),
        ("4", int | None, 4),
        ("some/file", Path, Path("some/file")),
        ("some/file", Path | None, Path("some/file")),
        ("3,5,7", tuple[int, ...], (3, 5, 7)),
        ("3, 5,", tuple[int, ...], (3, 5)),
        ("", tuple[int, ...], ()),
        ("no", bool, False),
        ("True", bool | None, True),
        (True, bool, True),
        (False, bool | None, False),
    ],
)
def test_text_becomes_the_annotated_type(text: str | bool, annotation: Any, value: Any) -> None:
    parsed = parse(text, annotation, "--flag")

    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("text", "annotation", "wanted"),
    [
        ("x", int, "a whole number"),
        ("1.5", int | None, "a whole number"),
        ("much", float, "a number"),
        ("3,x", tuple[int, ...], "whole numbers with commas"),
        ("3;4", tuple[int, ...], "whole numbers with commas"),
        ("maybe", bool, "yes or no"),
    ],
)
def test_text_that_does_not_fit_is_refused_with_what_is_wanted(text: str, annotation: Any, wanted: str) -> None:
    with pytest.raises(UnsupportedOption, match=f"--flag takes {wanted}, got '{text}'"):
        parse(text, annotation, "--flag")


def test_an_annotation_that_can_not_be_read_is_the_programmers_mistake() -> None:
    with pytest.raises(TypeError, match="--flag is annotated"):
        parse("1", dict[str, int], "--flag")


def test_every_option_of_every_registered_method_can_be_read_from_a_flag() -> None:
    examples = {
        "a whole number": "3",
        "a number": "0.5",
        "whole numbers with commas": "1,2",
        "a path": "here",
        "yes or no": "no",
    }
    for registry in (DRAFTERS, POLICIES):
        for entry in map(registry.entry, registry.names):
            for name, option in entry.options.items():
                parse(examples.get(words(option.annotation), "name"), option.annotation, name)


def test_only_a_bool_is_a_switch() -> None:
    assert is_switch(bool)
    assert is_switch(bool | None)
    assert not is_switch(int)
    assert not is_switch(int | None)


def test_words_name_each_type_for_a_reader() -> None:
    assert words(int | None) == "a whole number"
    assert words(str) == "a name"
    assert words(bool) == "yes or no"
    assert words(Path) == "a path"
    assert words(Any) == "a name or a path"
