"""Code of a method's parts, by its place: it is imported where it is used, so that a table of names needs no torch."""

from __future__ import annotations

import ast
import importlib.util
import inspect
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from trueodds.errors import ConfigError

if TYPE_CHECKING:
    from pipeline.config import OptionValue

Code: TypeAlias = Callable[..., Any] | str
"""A function or class, or its place as entry points have it: `package.module:name`."""


def load(code: Code) -> Callable[..., Any]:
    """Return the function or class; import it if its place is given.

    Raises:
        ConfigError: There is no such place.

    Examples:
        >>> load("pipeline.methods.losses.mse:mse").__name__
        'mse'
    """
    if not isinstance(code, str):
        return code
    module, name = _parts(code)
    try:
        function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    except (ModuleNotFoundError, AttributeError) as error:
        if isinstance(error, ModuleNotFoundError) and not f"{module}.".startswith(f"{error.name}."):
            raise  # another package, which this module imports
        raise ConfigError(f"{code!r} is not a place of code ({error}); give package.module:name") from error
    return function


def module_of(code: Code) -> str:
    """Return the name of the module that defines the code."""
    return _parts(code)[0] if isinstance(code, str) else code.__module__


def options_of(code: Code) -> dict[str, OptionValue]:
    """Return the keyword-only parameters of a function or class with their defaults.

    If the place is given, the source file is read and not imported. The signature remains the only definition of the
    options. A class without `__init__` has the one of its first base class that is named in its file.

    Raises:
        ConfigError: There is no such place, or a default is not a number, a text, true or false, or a quotient of two
            numbers.

    Examples:
        >>> options_of("pipeline.methods.losses.bsce:bsce")
        {'gamma': 2.0, 'norm': 2.0, 'gra': False}
    """
    if isinstance(code, str):
        return dict(_options_at(code))
    parameters = inspect.signature(code).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}


@cache
def _options_at(code: str) -> dict[str, OptionValue]:
    """Read the options from the source file."""
    module, name = _parts(code)
    arguments = _arguments(code, _tree(_file(code, module)), name)
    named = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return {argument.arg: _value(code, argument.arg, default) for argument, default in named}


def _parts(code: str) -> tuple[str, str]:
    """Return module and name of a place."""
    module, _, name = code.partition(":")
    if not module or not name.isidentifier():
        raise ConfigError(f"{code!r} is not a place of code; give package.module:name")
    return module, name


def _file(code: str, module: str) -> Path:
    """Return a module's source file. Packages are not imported, because their `__init__` may import torch."""
    package, *below = module.split(".")
    spec = importlib.util.find_spec(package)
    roots = [] if spec is None else [Path(place) for place in spec.submodule_search_locations or ()]
    places = [root.joinpath(*below) for root in roots]
    files = [file for place in places for file in (place.with_suffix(".py"), place / "__init__.py")]
    if spec is not None and not below and spec.origin is not None:
        files.insert(0, Path(spec.origin))
    for file in files:
        if file.is_file():
            return file
    raise ConfigError(f"{code!r} is not a place of code (no file of module {module!r}); give package.module:name")


@cache
def _tree(file: Path) -> ast.Module:
    """Return the syntax tree of a file."""
    return ast.parse(file.read_bytes())


def _arguments(code: str, tree: ast.Module, name: str) -> ast.arguments:
    """Return the parameters of a function, or of the `__init__` of a class."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return node.args
        if isinstance(node, ast.ClassDef) and node.name == name:
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef) and inner.name == "__init__":
                    return inner.args
            base = node.bases[0].id if node.bases and isinstance(node.bases[0], ast.Name) else ""
            return _arguments(code, tree, base) if base else ast.arguments([], [], None, [], [], None, [])
        if isinstance(node, ast.ImportFrom) and name in {alias.asname or alias.name for alias in node.names}:
            original = next(alias.name for alias in node.names if name == (alias.asname or alias.name))
            return _arguments(code, _tree(_file(code, str(node.module))), original)
    raise ConfigError(
        f"{code!r}: its file defines no function or class {name!r}; give package.module:name of one that is defined"
        " there"
    )


def _value(code: str, option: str, node: ast.expr | None) -> Any:
    """Return the value of a default."""
    match node:
        case ast.Constant(bool() | int() | float() | str() as value):
            return value
        case ast.UnaryOp(ast.USub(), ast.Constant(int() | float() as value)):
            return -value
        case ast.BinOp(ast.Constant(int() | float() as above), ast.Div(), ast.Constant(int() | float() as below)):
            return above / below
    shown = "no default" if node is None else f"the default {ast.unparse(node)}"
    raise ConfigError(
        f"option {option} of {code} has {shown}; a default is a number, a text, true or false, or a quotient of two"
        " numbers, such as 2 / 7"
    )
