"""Reads the definitions of a checkout, and what its names refer to, from its text. None of its code is run."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tools import PACKAGES
from tools.imports import file_of, sources, statements

FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
Function = ast.FunctionDef | ast.AsyncFunctionDef
Place = tuple[Path, str]
"""A file and the name of a function or class in it: `Class.method` for a method, "" for the module itself."""


@dataclass
class House:
    """The definitions of a checkout, and the meaning of the names in its files."""

    root: Path

    @cached_property
    def trees(self) -> dict[Path, ast.Module]:
        """Return the parsed files of the product."""
        files = [file for package in PACKAGES for file in sources(self.root, package)]
        return {file: ast.parse(file.read_text(encoding="utf-8")) for file in files}

    @cached_property
    def definitions(self) -> dict[Place, ast.AST]:
        """Return functions, classes and methods by their places."""
        found: dict[Place, ast.AST] = {}
        for file, tree in self.trees.items():
            for node in tree.body:
                if isinstance(node, FUNCTION):
                    found[file, node.name] = node
                elif isinstance(node, ast.ClassDef):
                    found[file, node.name] = node
                    methods = (part for part in node.body if isinstance(part, FUNCTION))
                    found |= {(file, f"{node.name}.{method.name}"): method for method in methods}
        return found

    @cached_property
    def imported_names(self) -> dict[Path, dict[str, str]]:
        """Return the dotted name behind each imported name of a file, wherever in the file the import stands."""
        found: dict[Path, dict[str, str]] = defaultdict(dict)
        for file, tree in self.trees.items():
            for node in statements(tree):
                if isinstance(node, ast.ImportFrom):
                    found[file] |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
                elif isinstance(node, ast.Import):
                    found[file] |= {a.asname or a.name: a.name for a in node.names}
        return found

    @cached_property
    def owners(self) -> dict[str, list[Place]]:
        """Return methods by their bare names."""
        found = defaultdict(list)
        for file, name in self.definitions:
            if "." in name:
                found[name.partition(".")[2]].append((file, name))
        return found

    def place_of_name(self, file: Path, name: str) -> Place | None:
        """Return the place that a name of a file refers to."""
        if (file, name) in self.definitions:
            return file, name
        dotted = self.imported_names[file].get(name)
        return None if dotted is None else self.place_of_dotted(dotted)

    def place_of_dotted(self, name: str) -> Place | None:
        """Return the place that a dotted name refers to: a module, or a name that its parent module has."""
        file = file_of(self.root, name)
        if file is None:
            return None
        module = ".".join(file.relative_to(self.root).with_suffix("").parts).removesuffix(".__init__")
        rest = name.removeprefix(module).removeprefix(".")
        return self.place_of_name(file, rest) if rest else (file, "")

    def member(self, owner: Place, name: str) -> Place | None:
        """Return a function of a module, or a method of a class or of its bases."""
        file, holder = owner
        if not holder:
            return self.place_of_name(file, name)
        if (file, f"{holder}.{name}") in self.definitions:
            return file, f"{holder}.{name}"
        node = self.definitions.get(owner)
        for base in node.bases if isinstance(node, ast.ClassDef) else ():
            above = self.place_of_name(file, base.id) if isinstance(base, ast.Name) else None
            if above is not None and (found := self.member(above, name)) is not None:
                return found
        return None

    def attribute(self, owner: Place, name: str) -> Place | None:
        """Return the class of an attribute, from its annotation or that of the argument assigned to it."""
        holder = self.definitions.get(owner)
        arguments: dict[str, ast.expr | None] = {}
        for part in ast.walk(holder) if holder is not None else ():
            if isinstance(part, ast.AnnAssign) and ast.unparse(part.target) in (name, f"self.{name}"):
                return self.class_of_annotation(owner[0], part.annotation)
            if isinstance(part, FUNCTION) and part.name == "__init__":
                arguments = {argument.arg: argument.annotation for argument in arguments_of(part)}
            if isinstance(part, ast.Assign):
                for target, value in _pairs(part):
                    if ast.unparse(target) == f"self.{name}" and isinstance(value, ast.Name):
                        return self.class_of_annotation(owner[0], arguments.get(value.id))
        return None

    def class_of_annotation(self, file: Path, node: ast.expr | None, own: str = "") -> Place | None:
        """Return the first class in an annotation that this checkout defines."""
        for part in ast.walk(node) if node is not None and not isinstance(node, ast.Subscript) else ():
            if isinstance(part, ast.Name):
                place = (file, own) if part.id == "Self" and own else self.place_of_name(file, part.id)
                if place is not None and isinstance(self.definitions.get(place), ast.ClassDef):
                    return place
        return None


def arguments_of(node: Function) -> list[ast.arg]:
    """Return all arguments of a function."""
    every = node.args
    return [*every.posonlyargs, *every.args, *every.kwonlyargs, *filter(None, (every.vararg, every.kwarg))]


def is_property(node: Function) -> bool:
    """Return whether a function is a property."""
    return any(ast.unparse(one) in ("property", "cached_property") for one in node.decorator_list)


def _pairs(node: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield each target of an assignment with its value."""
    for target in node.targets:
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            yield from zip(target.elts, node.value.elts, strict=True)
        else:
            yield target, node.value
