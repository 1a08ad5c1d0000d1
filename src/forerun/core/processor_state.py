"""Whether a callable is a function of its arguments: everything that it can reach is searched for state.

Everything that its code names is looked up: variables of enclosing functions, globals, defaults, bound arguments, attributes
of its object and the methods it calls. Plain values hold no state. Lists, dictionaries, sets and tensors may,
so they are watched. Everything else (iterators, generators, foreign objects) counts as a doubt.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from types import BuiltinFunctionType, CellType, FunctionType, MethodType, ModuleType
from typing import Any, final

import torch
from torch import Tensor

from .processor_code import Code, read

# How many values are watched at most: they are compared after every call.
WATCHED = 10_000

_PLAIN = (
    type(None),
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    range,
    slice,
    type(...),
    re.Pattern,
    torch.dtype,
    torch.device,
    torch.Size,
)
_CALLABLE = (FunctionType, MethodType, partial, BuiltinFunctionType, type)
_MODULES = frozenset({"torch", "torch.nn", "torch.nn.functional", "torch.special", "torch.linalg", "math", "operator"})
_BUILTINS = frozenset(
    {
        *(
            abs,
            all,
            any,
            bool,
            dict,
            divmod,
            enumerate,
            filter,
            float,
            frozenset,
            int,
            isinstance,
            iter,
            len,
            list,
            map,
        ),
        *(max, min, next, pow, range, reversed, round, set, slice, sorted, str, sum, tuple, zip, Tensor, torch.no_grad),
        *(torch.inference_mode, ValueError, TypeError, RuntimeError, IndexError, KeyError, AssertionError),
    }
)
# drawn numbers, and doors to memory past what is watched
_ATTRIBUTES = re.compile(
    r"__.*|.*(rand|multinomial|bernoulli|dropout|normal|poisson|seed|rng|cauchy|exponential|geometric|uniform|generator).*"
    r"|data|numpy|set_|storage|untyped_storage|data_ptr|register_.*|from_numpy|frombuffer|load|save|compile|manual_.*"
)
# methods that run without being named
_QUIET = frozenset(["__init__", "__call__", "__repr__", "__str__", "__post_init__", "__eq__", "__hash__", "__new__"])


@final
@dataclass(slots=True, eq=False)
class ReachableState:
    """What a callable can reach, filled by doubts. reads give what could change from call to call."""

    trusted: Callable[[Any], bool]
    reads: list[Callable[[], tuple[Any, ...]]] = field(default_factory=list)
    size: int = 0
    seen: dict[int, Any] = field(default_factory=dict)
    written: str | None = None
    objects: list[Any] = field(default_factory=list)
    attributes: set[str] = field(default_factory=set)
    changing: bool = False

    def once(self, value: Any) -> bool:
        if id(value) in self.seen:
            return False
        self.seen[id(value)] = value
        return True


def doubts(processor: Callable[..., Any], reach: ReachableState) -> Iterator[str]:
    """The reasons to think that processor isn't a function of its first two arguments; none if it is shown to be one."""
    yield from _callable(processor, reach, entry=True)
    looked_up: set[tuple[int, str]] = set()
    while left := [
        (owner, name)
        for owner in reach.objects
        for name in sorted(reach.attributes)
        if (id(owner), name) not in looked_up
    ]:
        for owner, name in left:
            looked_up.add((id(owner), name))
            yield from _class_attribute(owner, name, reach)
    if reach.written is not None and reach.changing:
        yield f"it may change what it holds ({reach.written})"
    if reach.size > WATCHED:
        yield f"it holds {reach.size} values, and at most {WATCHED} are watched"


@final
class StateWatch:
    """A processor that raises the error of `failure` if something it holds has changed since the request began."""

    def __init__(self, processor: Callable[..., Any], reach: ReachableState, failure: Callable[[], Exception]) -> None:
        self._processor = processor
        self._reach = reach
        self._failure = failure
        self._before = [read() for read in reach.reads]

    def __call__(self, ids: Tensor, scores: Tensor) -> Any:
        processed = self._processor(ids, scores)
        for before, read_ in zip(self._before, self._reach.reads, strict=True):
            now = read_()
            if len(now) != len(before) or not all(map(_same, before, now)):
                raise self._failure()
        return processed


def _same(before: Any, now: Any) -> bool:
    return before is now or (type(before) is type(now) is int and bool(before == now))


def _callable(target: Any, reach: ReachableState, entry: bool = False) -> Iterator[str]:
    if not reach.once(target) or reach.trusted(target):
        return
    if isinstance(target, partial):
        for value in (*target.args, *target.keywords.values()):
            yield from _value(value, "a bound argument", reach)
        yield from _callable(target.func, reach, entry and not target.args)
    elif isinstance(target, MethodType) and isinstance(target.__func__, FunctionType):
        yield from _object(target.__self__, reach)
        yield from _function(target.__func__, reach, entry, bound=True)
    elif isinstance(target, FunctionType):
        yield from _function(target, reach, entry)
    elif isinstance(call := type(target).__call__, FunctionType):
        yield from _object(target, reach)
        yield from _function(call, reach, entry, bound=True)
    elif not _known_builtin(target):
        yield f"it uses {_name(target)}, about which nothing is known"


def _known_builtin(target: Any) -> bool:
    if isinstance(target, type):
        return target in _BUILTINS
    owner = getattr(target, "__self__", None)
    from_module = owner is None or isinstance(owner, ModuleType) or owner is torch._C._VariableFunctions
    module = getattr(target, "__module__", None) or ""
    name = getattr(target, "__name__", "_")
    if not from_module or _ATTRIBUTES.fullmatch(name) or name.endswith("_"):
        return False
    if module == "builtins":
        return target in _BUILTINS
    known = module in ("math", "_operator", "torch", "torch._C._nn") or owner is torch._C._VariableFunctions
    return known and name not in ("setitem", "delitem", "methodcaller")


def _function(function: FunctionType, reach: ReachableState, entry: bool, bound: bool = False) -> Iterator[str]:
    if str(function.__globals__.get("__name__")).split(".")[0] == "torch":
        if _ATTRIBUTES.fullmatch(function.__name__):
            yield f"it calls {function.__name__}"
        return
    names = function.__code__.co_varnames
    code = read(function.__code__, names[bound : bound + 2] if entry else ())
    if code.stored is not None:
        yield f"it keeps state between calls (it stores {code.stored!r})"
    reach.written = reach.written or code.written
    for name in sorted(code.attributes):
        if _ATTRIBUTES.fullmatch(name):
            yield f"it takes the attribute {name!r}"
    reach.attributes |= code.attributes
    defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
    for value in defaults:
        yield from _value(value, "a default argument", reach)
    yield from _names(function, code, reach)


def _names(function: FunctionType, code: Code, reach: ReachableState) -> Iterator[str]:
    """Follow the names that a function's code reads outside of its own variables."""
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    scope = function.__globals__
    built_in = scope["__builtins__"] if isinstance(scope.get("__builtins__"), dict) else vars(scope["__builtins__"])
    for path in sorted(code.globals):
        name = path[0]
        if name in cells:
            try:
                value = cells[name].cell_contents
            except ValueError:
                yield f"{name!r} has no value yet"
                continue
        elif name in scope:
            value = scope[name]
        elif name in built_in:
            value = built_in[name]
        else:
            continue  # a variable of the function that the inner ones share
        if isinstance(value, ModuleType):
            yield from _of_module(value, path, reach)
            continue
        if not isinstance(value, _CALLABLE):
            reach.reads.append(partial(_cell, cells[name]) if name in cells else partial(_global, scope, name))
        yield from _value(value, repr(name), reach)


def _cell(cell: CellType) -> tuple[Any, ...]:
    return (cell.cell_contents,)


def _global(scope: dict[str, Any], name: str) -> tuple[Any, ...]:
    return (scope.get(name),)


def _of_module(module: ModuleType, path: tuple[str, ...], reach: ReachableState) -> Iterator[str]:
    value: Any = module
    for name in path[1:]:
        if not isinstance(value, ModuleType):
            return
        if value.__name__ not in _MODULES:
            yield f"it uses the module {value.__name__}"
            return
        value = getattr(value, name)
    if isinstance(value, ModuleType):
        yield f"it uses the module {value.__name__}"
    else:
        yield from _value(value, ".".join(path), reach)


def _value(value: Any, name: str, reach: ReachableState) -> Iterator[str]:
    """Doubts about a value that code can reach under a name."""
    kind = type(value)
    if kind in _PLAIN or isinstance(value, Enum):
        return
    if isinstance(value, _CALLABLE) or (callable(value) and isinstance(kind.__call__, FunctionType)):
        yield from _callable(value, reach)
    elif not reach.once(value):
        return
    elif kind in (tuple, frozenset):
        for part in value:
            yield from _value(part, name, reach)
    elif kind in (list, set, dict):
        reach.changing = True
        reach.size += len(value)
        reach.reads.append(partial(_parts, value))
        for part in _parts(value):
            yield from _value(part, name, reach)
    elif kind in (Tensor, torch.nn.Parameter):
        reach.changing = True
        if value.is_inference():
            yield f"it holds {name}, a tensor of inference mode, whose changes can't be seen"
        else:
            reach.reads.append(partial(_version, value))
    else:
        yield f"it holds {_name(value)} ({name}), about which nothing is known"


def _parts(container: Any) -> tuple[Any, ...]:
    return (*container.keys(), *container.values()) if isinstance(container, dict) else tuple(container)


def _version(tensor: Tensor) -> tuple[Any, ...]:
    return (tensor._version,)


def _object(owner: Any, reach: ReachableState) -> Iterator[str]:
    """Doubts about the object of a method: its attributes, and the special methods of its class."""
    kind = type(owner)
    for base in kind.__mro__[:-1]:
        unnamed = (n for n, value in vars(base).items() if n.startswith("__") and isinstance(value, FunctionType))
        if (found := next((n for n in unnamed if n not in _QUIET), None)) is not None:
            yield f"{kind.__name__} has a method {found} of its own"
        if vars(base).get("__slots__") or not base.__flags__ & (1 << 9):
            yield f"{kind.__name__} has slots, or isn't written in Python"
            return
    reach.objects.append(owner)
    held = vars(owner)
    reach.reads.append(partial(_parts, held))
    for name, value in held.items():
        yield from _value(value, repr(name), reach)


def _class_attribute(owner: Any, name: str, reach: ReachableState) -> Iterator[str]:
    """Doubts about an attribute that code takes, if it is the class of owner that has it."""
    found = inspect.getattr_static(type(owner), name, None)
    if found is None or name in vars(owner):
        return
    if isinstance(found, FunctionType):
        if reach.once(found):
            yield from _function(found, reach, entry=False, bound=True)
    elif isinstance(found, property) and isinstance(found.fget, FunctionType):
        if reach.once(found):
            yield from _function(found.fget, reach, entry=False, bound=True)
    elif isinstance(found, staticmethod):
        yield from _value(found.__func__, repr(name), reach)
    else:
        reach.reads.append(lambda: (inspect.getattr_static(type(owner), name, None),))
        yield from _value(found, repr(name), reach)


def _name(value: Any) -> str:
    if isinstance(value, type | FunctionType | MethodType | BuiltinFunctionType):
        return value.__qualname__
    return f"a {type(value).__name__}"
