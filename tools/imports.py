"""Reads the imports of a checkout from its text. None of its code is run."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from tools import PACKAGES


def sources(root: Path, folder: str) -> list[Path]:
    """Return the Python files of a folder of the checkout at `root`, including sub-folders."""
    return sorted((root / folder).rglob("*.py"))


def statements(tree: ast.AST) -> Iterator[ast.stmt]:
    """Yield all statements of a module, a function or a class, inner ones too, without their expressions."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.stmt):
            yield node
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            waiting += getattr(node, part, ())


@cache
def imports(path: Path) -> frozenset[str]:
    """Return the dotted names that a file imports, wherever the import stands, and also for type checking."""
    names = set()
    for node in statements(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(names)


@cache
def file_of(root: Path, name: str) -> Path | None:
    """Return the file that a dotted name comes from; None for a package that is not of the checkout."""
    while name:
        place = root / name.replace(".", "/")
        for path in (place.with_suffix(".py"), place / "__init__.py"):
            if path.is_file():
                return path
        name = name.rpartition(".")[0]
    return None


@cache
def imported_files(root: Path) -> dict[Path, set[Path]]:
    """Return each file of the product with the files of the product that it imports.

    A package's `__init__` counts if a name is imported from it, but not if it is only on the path to a module.
    """
    files = [path for package in PACKAGES for path in sources(root, package)]
    return {path: {file for name in imports(path) if (file := file_of(root, name))} - {path} for path in files}


def folder_parts(root: Path, folder: str) -> dict[str, set[str]]:
    """Return each module and sub-package of a folder, with those of the same folder that it imports.

    "." is the folder of the product's packages.
    """
    place = root / folder
    parts: dict[str, set[str]] = {}
    for path, others in imported_files(root).items():
        if not path.is_relative_to(place):
            continue
        own = part_of(place, path)
        inside = {part_of(place, other) for other in others if other.is_relative_to(place)}
        parts.setdefault(own, set()).update(inside - {own})
    return parts


def part_of(place: Path, path: Path) -> str:
    """Return the module or sub-package of the folder `place` to which a file belongs."""
    return path.relative_to(place).parts[0].removesuffix(".py")


def circle(graph: Mapping[Any, set[Any]]) -> list[Any]:
    """Return the members of one circle of a graph, or an empty list."""
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        return list(error.args[1])
    return []
