"""Traces a parameter through the files that it passes, and measures the folders. None of the code is run.

    python -m tools.walks                                   # six walks and all folders of this checkout
    python -m tools.walks --root ../before --json           # of another checkout
    python -m tools.walks --walk trueodds/importing/importer.py:import_model:model

A walk follows one parameter through the calls that pass it, or something made of it. It goes depth first, in the order
of the code, and visits each function once. A stop is a stay in one file; a return is a stop in a file that was left
before. Calls whose target is not clear from the text are not followed, and a property does not count as a call. A
folder's rooms are its files. A room's floor is one above the highest room of the folder that it imports.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, astuple, dataclass, field, fields
from pathlib import Path

from tools import PACKAGES, ROOT
from tools.definitions import FUNCTION, Function, House, Place, arguments_of, is_property
from tools.folders import Folder, measure_folder
from tools.imports import imported_files, sources

WALKS = {
    "/predict": "service/predict/predict_route.py:predict:request",
    "label": "service/labels/feedback_route.py:give_feedback:request",
    "alarm": "service/alarm/watch.py:Watch.poll:self",
    "training.method": "pipeline/stages.py:train:params.training.method",
    "calibrator": "pipeline/stages.py:calibrate:params.calibration",
    "import": "trueodds/importing/importer.py:import_model:model",
}
"""Starts of the walks: file, function, and parameter or part of one."""
TOOLS = ("trueodds/metrics", "trueodds/sums", "trueodds/texts", "trueodds/errors", "trueodds/names", "trueodds/files")
"""Folders whose calls are not stops: formulas, texts and files, which do not depend on the data that passes through."""


@dataclass
class Walk:
    """The path of one parameter through a checkout."""

    house: House
    trail: list[Place] = field(default_factory=list)
    """Functions that it passed through."""

    def enter(self, place: Place, carried: Iterable[str]) -> None:
        """Visit a function whose parameters `carried` hold the parameter or something made of it."""
        node = self.house.definitions.get(place)
        names = set(carried)
        if str(place[0].relative_to(self.house.root)).startswith(TOOLS) or not isinstance(node, FUNCTION):
            return
        if names and place not in self.trail and not is_property(node):
            self.trail.append(place)
            Visit(self, place, names).body(node)

    @property
    def stops(self) -> list[Path]:
        """Return the files it stayed in, in order."""
        files = [file for file, _ in self.trail]
        return [file for k, file in enumerate(files) if k == 0 or files[k - 1] != file]


class Visit(ast.NodeVisitor):
    """A visit of one function, from its first statement to its last."""

    def __init__(self, walk: Walk, place: Place, carried: set[str]) -> None:
        self.walk, self.house, self.file, self.carried = walk, walk.house, place[0], carried
        self.holder = place[1].rpartition(".")[0]
        self.types: dict[str, Place | None] = {"self": (self.file, self.holder), "cls": (self.file, self.holder)}

    def body(self, node: Function) -> None:
        """Visit the statements of a function."""
        for argument in arguments_of(node):
            if argument.annotation is not None:
                self.types[argument.arg] = self.house.class_of_annotation(self.file, argument.annotation, self.holder)
        for statement in node.body:
            self.visit(statement)

    def carries(self, node: ast.AST | None) -> bool:
        """Return whether an expression names something that is carried."""
        parts = ast.walk(node) if node is not None else ()
        return any(isinstance(p, ast.Name | ast.Attribute) and ast.unparse(p) in self.carried for p in parts)

    def hands_over(self, node: ast.expr | None) -> bool:
        """Return whether an expression has a call that passes an object with a carried part."""
        calls = (one for one in ast.walk(node) if isinstance(one, ast.Call)) if node is not None else ()
        return any(any(self.parts("", value)) for call in calls for value in _arguments(call))

    def assign(self, targets: Iterable[ast.expr], value: ast.expr | None) -> None:
        """Record whether the targets of an assignment carry the parameter."""
        for target in targets:
            if isinstance(target, ast.Name) and value is not None:
                self.types[target.id] = self.type_of(value)
            if self.carries(value) or self.hands_over(value):
                parts = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
                self.carried |= {ast.unparse(part) for part in parts}

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        self.assign(node.targets, node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)
        self.assign([node.target], node.value)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.visit(node.value)
        self.assign([node.target], node.value)

    def visit_For(self, node: ast.For | ast.AsyncFor | ast.comprehension) -> None:
        self.visit(node.iter)
        self.assign([node.target], node.iter)
        for part in node.ifs if isinstance(node, ast.comprehension) else [*node.body, *node.orelse]:
            self.visit(part)

    visit_AsyncFor = visit_comprehension = visit_For

    def visit_withitem(self, node: ast.withitem) -> None:
        self.visit(node.context_expr)
        self.assign([node.optional_vars] if node.optional_vars else [], node.context_expr)

    def visit_ListComp(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> None:
        for generator in node.generators:
            self.visit(generator)
        for part in (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,):
            self.visit(part)

    visit_SetComp = visit_GeneratorExp = visit_DictComp = visit_ListComp

    def visit_FunctionDef(self, node: Function) -> None:
        """Visit an inner function, which may be called with a carried value."""
        self.carried |= {argument.arg for argument in arguments_of(node)}
        self.body(node)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        passed = _arguments(node)
        receiver = node.func.value if isinstance(node.func, ast.Attribute) else None
        place = self.place_of(node.func)
        if place is not None:
            if isinstance(self.house.definitions.get(place), ast.ClassDef):
                place = self.house.member(place, "__init__") or self.house.member(place, "__post_init__") or place
            self.walk.enter(place, self.receiving_parameters(place, node, receiver))
        if any(self.carries(one) for one in passed):
            for one in passed:  # a function that is passed along with it may be called with it
                other = self.place_of(one)
                definition = None if other is None else self.house.definitions.get(other)
                if other is not None and isinstance(definition, FUNCTION):
                    self.walk.enter(other, [argument.arg for argument in arguments_of(definition)])

    def receiving_parameters(self, place: Place, node: ast.Call, receiver: ast.expr | None) -> Iterator[str]:
        """Yield the callee's parameters that receive a carried value, or parts of one: `params.training`."""
        definition = self.house.definitions.get(place)
        if not isinstance(definition, FUNCTION):
            return
        names = [a.arg for a in (*definition.args.posonlyargs, *definition.args.args)]
        if names and names[0] in ("self", "cls"):
            yield from self.parts(names.pop(0), receiver)
        for k, value in enumerate(node.args):
            rest = names[k:] if isinstance(value, ast.Starred) else names[k : k + 1]
            for name in rest or ([definition.args.vararg.arg] if definition.args.vararg else []):
                yield from self.parts(name, value)
        for keyword in node.keywords:
            yield from self.parts(keyword.arg or "**", keyword.value)

    def parts(self, name: str, value: ast.expr | None) -> Iterator[str]:
        """Yield a parameter's name if its value is carried, or the names of its carried parts."""
        if self.carries(value):
            yield name
        elif value is not None:
            whole = ast.unparse(value) + "."
            yield from (f"{name}.{one.removeprefix(whole)}" for one in self.carried if one.startswith(whole))

    def place_of(self, node: ast.expr) -> Place | None:
        """Return the place that an expression refers to. A method of an unknown class must be unique."""
        if isinstance(node, ast.Name):
            return self.house.place_of_name(self.file, node.id)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"[\w.]+:\w+", node.value):
            return self.house.place_of_dotted(node.value.replace(":", "."))
        if not isinstance(node, ast.Attribute):
            return None
        owner = self.type_of(node.value) or self.place_of(node.value)
        if owner is not None:
            return self.house.member(owner, node.attr)
        near = [
            place for place in self.house.owners[node.attr] if place[0] in imported_files(self.house.root)[self.file]
        ]
        return near[0] if len(near) == 1 and self.carries(node.value) else None

    def type_of(self, node: ast.expr) -> Place | None:
        """Return the class of an expression's value if annotations and calls show it."""
        if isinstance(node, ast.Await):
            return self.type_of(node.value)
        if isinstance(node, ast.Name):
            return self.types.get(node.id)
        if isinstance(node, ast.Call):
            place = self.place_of(node.func)
            made = None if place is None else self.house.definitions.get(place)
            if isinstance(made, FUNCTION) and place is not None:
                return self.house.class_of_annotation(place[0], made.returns, place[1].rpartition(".")[0])
            return place if isinstance(made, ast.ClassDef) else None
        if isinstance(node, ast.Attribute) and (owner := self.type_of(node.value)) is not None:
            return self.house.attribute(owner, node.attr)
        return None


def _arguments(node: ast.Call) -> list[ast.expr]:
    """Return the arguments of a call."""
    return [*node.args, *(keyword.value for keyword in node.keywords)]


@dataclass(frozen=True)
class Way:
    """The numbers of one walk."""

    walk: str
    stops: int
    rooms: int
    returns: int


def trace(house: House, place: str) -> Walk:
    """Trace one parameter, given by `place` as FILE:FUNCTION:PARAMETER.

    Raises:
        SystemExit: There is no such function.
    """
    file, function, parameter = place.split(":")
    if (house.root / file, function) not in house.definitions:
        raise SystemExit(f"{file} has no function {function}; give an existing one in WALKS or by --walk")
    walk = Walk(house)
    walk.enter((house.root / file, function), [parameter])
    return walk


def way(name: str, walk: Walk) -> Way:
    """Count a walk."""
    rooms = len(set(walk.stops))
    return Way(name, len(walk.stops), rooms, len(walk.stops) - rooms)


def text_table(rows: Sequence[Way | Folder]) -> str:
    """Return rows as a table with a column for each field."""
    cells = [[field.name.replace("_", " ") for field in fields(rows[0])], *[[str(c) for c in astuple(r)] for r in rows]]
    width = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for name, *numbers in cells:
        lines.append("  ".join([name.ljust(width[0]), *(n.rjust(w) for n, w in zip(numbers, width[1:], strict=True))]))
    return "\n".join(lines)


def main() -> None:
    """Print the walks and the measurements of the folders."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout (default: this one)")
    parser.add_argument(
        "--walk", metavar="FILE:FUNCTION:PARAMETER", help="trace only this parameter, and list the functions"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    arguments = parser.parse_args()
    root = arguments.root.resolve()
    house, folders = House(root), []
    if arguments.walk:
        walk = trace(house, arguments.walk)
        ways = [way(arguments.walk, walk)]
        if not arguments.json:
            print("\n".join(f"{file.relative_to(root)}: {name}" for file, name in walk.trail))
    else:
        ways = [way(name, trace(house, place)) for name, place in WALKS.items()]
        names = {str(file.parent.relative_to(root)) for package in PACKAGES for file in sources(root, package)}
        folders = [measure_folder(root, name) for name in sorted(names)]
    if arguments.json:
        print(
            json.dumps({"walks": [asdict(one) for one in ways], "folders": [asdict(one) for one in folders]}, indent=2)
        )
    else:
        print("\n\n".join(text_table(rows) for rows in (ways, folders) if rows))


if __name__ == "__main__":
    main()
