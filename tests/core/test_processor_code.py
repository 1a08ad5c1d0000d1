"""What instructions tell of a function, here of functions written for it."""

from collections.abc import Callable
from typing import Any

import pytest

from forerun.core.processor_code import read

outside: Any = {}


def read_of(function: Callable[..., Any], *arguments: str) -> Any:
    return read(function.__code__, arguments)


def names(x: Any) -> Any:
    return outside.some.path(x), len(x), [other.kind for other in x]


def stores_attribute(x: Any) -> None:
    x.last = 1


def stores_global(x: Any) -> None:
    global outside
    outside = x


def deletes_attribute(x: Any) -> None:
    del x.last


def stores_inside(x: Any) -> Any:
    def inner() -> None:
        x.inner = 1

    return inner


def imports(x: Any) -> None:
    import random  # noqa: F401


def keeps_to_itself(x: Any) -> Any:
    total = 0

    def add(value: int) -> None:
        nonlocal total
        total += value

    add(x)
    return total


def writes_argument(x: Any) -> Any:
    x[0] = 1
    x[:, 2] += 1
    x.add_(2)
    x[1:2] = 3
    del x[4]
    return x


def writes_own(x: Any) -> Any:
    out = [1]
    out.append(2)
    copy = x.clone()
    copy[0] = 1
    x = x + 1
    x[3] = 2
    return out, copy


def writes_global(x: Any) -> None:
    outside[x] = 1


def adds_to_global(x: Any) -> None:
    outside[x] += 1


def calls_changing(x: Any) -> None:
    outside.update(x)


def calls_in_place(x: Any) -> None:
    outside.value.add_(x)


def writes_through_a_name(x: Any) -> None:
    own = outside
    own[x] = 1


def writes_through_an_item(x: Any) -> None:
    outside["list"].append(x)


def deletes_item(x: Any) -> None:
    del outside[x]


def writes_default(x: Any, held: Any = []) -> None:  # noqa: B006
    held.append(x)


def test_globals_come_with_the_attributes_taken_of_them() -> None:
    code = read_of(names, "x")
    assert {("outside", "some", "path"), ("len",)} <= code.globals
    assert {"some", "path", "kind"} == code.attributes


@pytest.mark.parametrize(
    ("function", "stored"),
    [
        (stores_attribute, "last"),
        (stores_global, "outside"),
        (deletes_attribute, "last"),
        (stores_inside, "inner"),
        (imports, "random"),
        (keeps_to_itself, None),
        (writes_own, None),
    ],
)
def test_what_is_stored_outside_is_told_by_its_name(function: Callable[..., Any], stored: str | None) -> None:
    assert read_of(function, "x").stored == stored


@pytest.mark.parametrize("function", [writes_argument, writes_own, keeps_to_itself, names])
def test_writing_into_arguments_and_variables_of_the_call_is_no_writing_outside(function: Callable[..., Any]) -> None:
    assert read_of(function, "x").written is None


@pytest.mark.parametrize(
    ("function", "written"),
    [
        (writes_global, "an item"),
        (adds_to_global, "an item"),
        (deletes_item, "an item"),
        (calls_changing, ".update"),
        (calls_in_place, ".add_"),
        (writes_through_a_name, "an item"),
        (writes_through_an_item, ".append"),
        (writes_default, ".append"),
    ],
)
def test_writing_into_anything_else_is_told(function: Callable[..., Any], written: str) -> None:
    assert read_of(function, "x").written == written


def test_arguments_that_are_not_named_are_not_the_calls_own() -> None:
    assert read_of(writes_argument).written == "an item"


def test_a_variable_of_an_enclosing_function_is_stored_outside_of_the_inner_one() -> None:
    total = 0

    def inner() -> None:
        nonlocal total
        total += 1

    assert read_of(inner).stored == "total"
