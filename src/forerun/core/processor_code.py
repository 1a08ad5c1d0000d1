"""What a function's code does beyond its own variables, as far as its instructions tell.

The instructions say which names and attributes are read, what is stored outside for certain, and what is written into
something that may have come from outside. The last is an approximation; processor_state watches what can be reached.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from types import CodeType

# methods that change what they are called on, besides the tensors' own, which end in an underscore
_CHANGING = frozenset(
    [
        "add",
        "append",
        "appendleft",
        "clear",
        "discard",
        "extend",
        "extendleft",
        "insert",
        "pop",
        "popitem",
        "popleft",
        "remove",
        "reverse",
        "rotate",
        "setdefault",
        "sort",
        "update",
    ]
)
# results of these belong to the call, or are noticed by the watch where they don't
_FRESH = ("BINARY_OP", "BUILD_", "CALL", "COMPARE_OP", "LOAD_CONST", "UNARY_")


@dataclass(frozen=True, slots=True)
class Code:
    """globals are names with the attributes taken of them; stored and written name what is changed, None if nothing."""

    globals: frozenset[tuple[str, ...]]
    attributes: frozenset[str]
    stored: str | None
    written: str | None


@dataclass(frozen=True, slots=True)
class _Step:
    name: str
    value: object
    effect: int


def read(code: CodeType, arguments: tuple[str, ...] = ()) -> Code:
    """Read a function's code and that of the functions inside it. arguments are its parameters that may be written into."""
    steps = list(_steps(code))
    free = frozenset(code.co_freevars)
    parts = [
        _read(steps, free, _own(code, steps, arguments)),
        *(_read(list(_steps(inner)), free, frozenset()) for inner in _inner(code)),
    ]
    return Code(
        frozenset().union(*(part.globals for part in parts)),
        frozenset().union(*(part.attributes for part in parts)),
        next((part.stored for part in parts if part.stored), None),
        next((part.written for part in parts if part.written), None),
    )


def _read(steps: list[_Step], free: frozenset[str], own: frozenset[str]) -> Code:
    return Code(
        frozenset(_globals(steps)),
        frozenset(str(step.value) for step in steps if step.name in ("LOAD_ATTR", "LOAD_METHOD")),
        next(_stored(steps, free), None),
        next(_written(steps, own), None),
    )


def _inner(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _inner(constant)


def _steps(code: CodeType) -> Iterator[_Step]:
    for step in dis.get_instructions(code):
        if step.opname.count("_FAST") > 1:  # Python 3.13 has two in one
            names = step.opname.split("_FAST")[:-1]
            for name, value in zip(names, step.argval, strict=True):
                yield _Step(name.strip("_") + "_FAST", value, 1 if "LOAD" in name else -1)
        elif step.opname != "EXTENDED_ARG":
            effect = dis.stack_effect(step.opcode, step.arg, jump=False)
            yield _Step(step.opname.replace("_BORROW", ""), step.argval, effect)


def _globals(steps: list[_Step]) -> Iterator[tuple[str, ...]]:
    for number, step in enumerate(steps):
        if step.name not in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF"):
            continue
        path = [str(step.value)]
        for following in steps[number + 1 :]:
            if following.name not in ("LOAD_ATTR", "LOAD_METHOD"):
                break
            path.append(str(following.value))
        yield tuple(path)


def _stored(steps: list[_Step], free: frozenset[str]) -> Iterator[str]:
    """The names that are stored outside, and what else can't be a function of arguments."""
    for step in steps:
        if step.name in ("STORE_ATTR", "STORE_GLOBAL", "DELETE_ATTR", "DELETE_GLOBAL", "IMPORT_NAME") or (
            step.name in ("STORE_DEREF", "DELETE_DEREF") and step.value in free
        ):
            yield str(step.value)


def _own(code: CodeType, steps: list[_Step], arguments: tuple[str, ...]) -> frozenset[str]:
    """The variables that hold nothing from outside as far as one step tells."""
    outside = {*code.co_varnames[: _parameters(code)]} - {*arguments}
    for before, step in pairwise(steps):
        known = before.name == "LOAD_FAST" and before.value in arguments
        if step.name in ("STORE_FAST", "STORE_DEREF") and not known and not before.name.startswith(_FRESH):
            outside.add(str(step.value))
    return frozenset({*code.co_varnames, *code.co_cellvars} - outside)


def _parameters(code: CodeType) -> int:
    variadic = bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)
    return code.co_argcount + code.co_kwonlyargcount + variadic


def _written(steps: list[_Step], own: frozenset[str]) -> Iterator[str]:
    """What is written into, where that isn't a variable of the call's own."""
    for number, step in enumerate(steps):
        if step.name in ("LOAD_ATTR", "LOAD_METHOD"):
            name = str(step.value)
            changes = name in _CHANGING or (name.endswith("_") and not name.startswith("_"))
            if changes and not _is_own(steps[number - 1], own):
                yield f".{name}"
        elif step.name in ("STORE_SUBSCR", "DELETE_SUBSCR", "STORE_SLICE"):
            into = _container(steps, number)
            if into is None or not _is_own(into, own):
                yield "an item"


def _is_own(step: _Step, own: frozenset[str]) -> bool:
    return step.name in ("LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_DEREF", "LOAD_CLOSURE") and step.value in own


def _container(steps: list[_Step], number: int) -> _Step | None:
    """The step that loads what an item is stored into, if one step does."""
    end, keys = number, 2 if steps[number].name == "STORE_SLICE" else 1
    if steps[number - 1].name == "SWAP":  # x[key] += value copies x and key before
        copies = [at for at in range(number) if steps[at].name == "COPY" and steps[at + 1].name == "COPY"]
        if not copies:
            return None
        end = copies[-1]
    for _ in range(keys):
        begun = _begin(steps, end)
        if begun is None:
            return None
        end = begun
    return steps[end - 1] if end and steps[end - 1].effect == 1 else None


def _begin(steps: list[_Step], end: int) -> int | None:
    """Where the expression begins whose value is on the stack before step end."""
    total = 0
    for at in range(end - 1, -1, -1):
        total += steps[at].effect
        if total == 1:
            return at
    return None
