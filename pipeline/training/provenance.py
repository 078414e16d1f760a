"""The source files of a training run, and hashes of the code in them that can change a number.

The hash leaves out comments, docstrings, annotations, formatting and log messages (`_essence`). It also leaves out
LEFT_OUT and the tables of names (methods, nets, recipes): a run's Plan holds their entries as values.
"""

from __future__ import annotations

import ast
import gc
import hashlib
import json
import threading
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("trueodds", "pipeline")
LEFT_OUT = ("pipeline.config", "trueodds.cli", "trueodds.errors", "trueodds.processes.progress")
"""Modules that only check what a person wrote, word an error or show progress. No number of a finished run depends on
them. A module may be listed here only as long as that is true.
"""
_SILENT_IMPORTS = ("__future__", "collections.abc", "logging", "typing")
"""Modules whose names are used only in annotations and log messages."""
_SILENT_FIELDS = ("annotation", "returns", "type_comment", "type_ignores", "type_params", "kind")
"""Fields of syntax trees that hold types or formatting."""
_FIELDS = {
    kind: tuple(name for name in kind._fields if kind is ast.AnnAssign or name not in _SILENT_FIELDS)
    for kind in vars(ast).values()
    if isinstance(kind, type) and issubclass(kind, ast.AST)
}
"""Kind of node -> its fields that can change a number."""
_PARSING = threading.Lock()
_STATEMENTS = ("body", "orelse", "finalbody", "handlers", "cases")
"""Fields of syntax trees that hold statements, or what holds them."""


def code_hashes(modules: Iterable[str], users: Iterable[Path] = ()) -> dict[str, str]:
    """Return file -> SHA-256 of its code, for the named modules and all modules of this project that they import.

    Modules of this project that the source files `users` import count too. These files belong to other distributions.

    Imports inside functions count. LEFT_OUT, and modules that only those import, do not count. Imports under
    `if TYPE_CHECKING` run no code and do not count, unless an `else` follows: it imports the same names at their first
    use (`trueodds.processes.lazy`).

    An import from a package counts the module that it names. The package's `__init__` counts only if the import names
    something else: apart from switching telemetry off, an `__init__` here only re-exports names of its modules.
    """
    hashes: dict[Path, tuple[str, str]] = {}
    left_out = {_file(name) for name in LEFT_OUT}
    waiting = [file for name in modules if (file := _file(name)) is not None]
    for user in users:
        waiting += _imports(parse(user.read_bytes()))
    while waiting:
        file = waiting.pop()
        if file not in hashes and file not in left_out:
            name, hashed, imported = _scan(file, file.stat().st_mtime_ns)
            hashes[file] = name, hashed
            waiting += imported
    return dict(sorted(hashes.values()))


@cache
def _scan(file: Path, changed_ns: int) -> tuple[str, str, tuple[Path, ...]]:
    """Return name, hash and imports of a file. Cached, because a study plans hundreds of runs that share most files."""
    tree = parse(file.read_bytes())
    return file.relative_to(ROOT).as_posix(), code_hash(tree), tuple(_imports(tree))


def parse(source: bytes) -> ast.Module:
    """Return the syntax tree of a source file, also while other threads parse.

    Until Python 3.11.7, all threads share the depth of the recursion (CPython gh-106905). If garbage is collected
    within `ast.parse`, another thread may parse meanwhile. Then a SystemError says that the depths differ. So no
    garbage is collected here.
    """
    with _PARSING:
        collects = gc.isenabled()
        gc.disable()
        try:
            return ast.parse(source)
        finally:
            if collects:
                gc.enable()


def code_hash(tree: ast.Module) -> str:
    """Return the SHA-256 of what a source file computes; differences that `_essence` leaves out do not change it."""
    return hashlib.sha256(json.dumps(_essence(tree), sort_keys=True).encode()).hexdigest()


def _essence(node: object, in_class: bool = False) -> Any:
    """Return a syntax tree as JSON, without docstrings, annotations, log messages and imports for them.

    Annotations in the body of a class stay, because they define fields of dataclasses and pydantic models. Empty fields
    are left out, because versions of Python differ in them.
    """
    if isinstance(node, list):
        return [_essence(item, in_class) for item in node if not _is_silent(item, in_class)]
    if not isinstance(node, ast.AST):
        return repr(node)
    if isinstance(node, ast.AnnAssign) and not in_class:
        assert node.value is not None, "an annotation without a value is silent"
        node = ast.Assign([node.target], node.value)
    kind = type(node)
    essence: dict[str, Any] = {"node": kind.__name__}
    for name in _FIELDS[kind]:
        child = getattr(node, name, None)
        if child is not None and child != []:
            essence[name] = _essence(child, name == "body" and kind is ast.ClassDef)
    return essence


def _is_silent(node: object, in_class: bool) -> bool:
    """Return whether a statement cannot change a number."""
    match node:
        case ast.Expr(ast.Constant(str())):  # a docstring, also of a constant
            return True
        case ast.Expr(ast.Call(ast.Attribute(ast.Name("log")))):
            return True
        case ast.If(ast.Name("TYPE_CHECKING")):
            return True
        case ast.AnnAssign(value=None):
            return not in_class
        case ast.ImportFrom(module) | ast.Import([ast.alias(module)]):
            return module in _SILENT_IMPORTS
        case _:
            return False


def _imports(tree: ast.Module) -> Iterator[Path]:
    """Yield the project's files that a source file imports, at its top or inside a function."""
    waiting: list[ast.AST] = [tree]
    names: list[str] = []
    while waiting:
        match node := waiting.pop():
            case ast.Import():
                names += [alias.name for alias in node.names]
            case ast.ImportFrom():
                for alias in node.names:
                    module = f"{node.module}.{alias.name}"
                    names.append(module if _file(module) is not None else str(node.module))
            case ast.If(ast.Name("TYPE_CHECKING"), orelse=[]):
                pass
            case _:  # of what a node holds, only lists hold statements
                for field in _STATEMENTS:
                    if isinstance(held := getattr(node, field, None), list):
                        waiting += held
    yield from filter(None, map(_file, names))


def _file(module: str) -> Path | None:
    """Return the source file of a module of this project; None for anything else."""
    if module.partition(".")[0] not in PACKAGES:
        return None
    path = ROOT.joinpath(*module.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)
