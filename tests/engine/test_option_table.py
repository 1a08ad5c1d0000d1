"""The table of request options in the documents."""

from __future__ import annotations

from dataclasses import fields

import pytest

from forerun.engine.option_table import options_table
from forerun.engine.options import Options
from forerun.engine.request import option_help


def rows() -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in options_table().splitlines()]


def test_the_table_has_a_line_for_each_option_in_their_order() -> None:
    head, rule, *lines = rows()

    assert head == ["option", "type", "default", "what it does"]
    assert rule == ["---"] * 4
    assert [line[0] for line in lines] == [f"`{field.name}`" for field in fields(Options)]


def test_every_line_has_all_cells_and_the_sentence_of_the_option() -> None:
    lines = rows()[2:]

    assert {len(line) for line in lines} == {4}
    assert [line[3] for line in lines] == list(option_help().values())


@pytest.mark.parametrize(
    ("option", "types", "default"),
    [
        ("max_new_tokens", "`int`", "`128`"),
        ("temperature", "`float`", "`0.0`"),
        ("speculate", "`bool`", "`True`"),
        ("seed", "`int`", "none"),
        ("stop", "`str` or `Iterable[str]`", "none"),
        ("stop_token_ids", "`int` or `Iterable[int]`", "none"),
        ("processors", "`LogitsProcessor` or `Iterable[LogitsProcessor]`", "none"),
    ],
)
def test_a_line_says_what_an_option_may_be_and_what_stands_in_for_it(option: str, types: str, default: str) -> None:
    (line,) = [line for line in rows() if line[0] == f"`{option}`"]

    assert line[1:3] == [types, default]
