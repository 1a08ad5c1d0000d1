"""What a package's methods are, read off the source: importing them takes seconds, for torch comes with them.

A module that can't be read so (no source, or an annotation or a default of another form) is imported instead, and
registers its methods itself.
"""

from __future__ import annotations

import ast
import inspect
import operator
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.abc import InspectLoader
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

TYPES: Mapping[str, Any] = {one.__name__: one for one in (int, float, bool, str, tuple, Path)} | {"Any": Any}


@dataclass(frozen=True, slots=True)
class Written:
    """A registered build function as its module's source has it."""

    module: str
    function: str
    name: str
    source: str
    summary: str
    options: Mapping[str, inspect.Parameter]
    passes_options_on: bool


def methods_written_in(package: str) -> list[Written]:
    """The methods of a package's modules, those left out that had to be imported."""
    found: list[Written] = []
    for info in iter_modules(import_module(package).__path__):
        module = f"{package}.{info.name}"
        spec = find_spec(module)
        text = spec.loader.get_source(module) if spec and isinstance(spec.loader, InspectLoader) else None
        try:
            found += [] if text is None else written_in(module, text)
        except ValueError:
            text = None
        if text is None:
            import_module(module)
    return found


def written_in(module: str, text: str) -> list[Written]:
    """The methods in a module's source. Raises ValueError where it doesn't tell what they are without being run."""
    tree = ast.parse(text)
    constants = dict(_constants(tree))
    found: list[Written] = []
    for function in (one for one in tree.body if isinstance(one, ast.FunctionDef)):
        for decorator in function.decorator_list:
            match decorator:
                case ast.Call(
                    func=ast.Name(),
                    args=[ast.Constant(value=str(name))],
                    keywords=[ast.keyword(arg="source", value=ast.Constant(value=str(source)))],
                ):
                    found.append(_written(module, function, name, source, constants))
                case ast.Call(func=ast.Name(id=registry)) if registry.isupper():
                    raise ValueError(f"line {function.lineno}: what {registry} registers can't be told from the source")
    return found


def _written(
    module: str, function: ast.FunctionDef, name: str, source: str, constants: Mapping[str, ast.expr]
) -> Written:
    options: dict[str, inspect.Parameter] = {}
    for argument, default in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True):
        options[argument.arg] = inspect.Parameter(
            argument.arg,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if default is None else _value(default, constants),
            annotation=inspect.Parameter.empty if argument.annotation is None else _type(argument.annotation),
        )
    summary = (ast.get_docstring(function) or "").split("\n")[0]
    return Written(module, function.name, name, source, summary, options, function.args.kwarg is not None)


def _constants(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """What a module's names are set to."""
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield name, value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                yield name, value
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                yield from (
                    (one.id, value) for one, value in zip(names, values, strict=False) if isinstance(one, ast.Name)
                )


def _value(node: ast.expr, constants: Mapping[str, ast.expr]) -> Any:
    """Raises ValueError where it is no literal, and no name of one."""
    return ast.literal_eval(constants.get(node.id, node) if isinstance(node, ast.Name) else node)


def _type(node: ast.expr) -> Any:
    """Raises ValueError where it is made of other types than TYPES."""
    match node:
        case ast.Name(id=name) if name in TYPES:
            return TYPES[name]
        case ast.Constant(value=value) if value in (None, ...):
            return value
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return operator.or_(_type(left), _type(right))
        case ast.Subscript(value=value, slice=ast.Tuple(elts=inner)):
            return _type(value)[tuple(map(_type, inner))]
        case ast.Subscript(value=value, slice=inner):
            return _type(value)[_type(inner)]
    raise ValueError(f"line {node.lineno}: the type {ast.unparse(node)} can't be told from the source")
