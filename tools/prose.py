"""Checks of the language: sentence length in pages, beginnings of docstrings, and names.

A name that leaves a function is a noun, a verb or a predicate such as `is_served`. Within a package a file has a name
of its own, and so has a class in all packages.

`python -m tools.prose` prints findings such as `docs/how-to/x.md:12: 31 words ...`. It exits with 1 if there are any.
`python -m tools.prose names PATH..` prints the names under the paths only.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path

from markdown_it import MarkdownIt

WORDS = 25
"""The longest sentence of a page."""

CELL_WORDS = 30
"""The longest sentence in a cell of a table, where names and numbers stand in place of clauses."""

BANNED = ("Of", "As", "By", "In", "What", "Who", "Whom", "Whose", "Where", "Which", "How")
"""First words of a docstring that make it a fragment or a clause."""

CODE = ("trueodds", "pipeline", "service", "tools", "benchmarks", "examples")
UNREAD = ("docs/explanation/results.md", "docs/reference/commands.md")
"""Pages that a program writes for the most part."""

NAMED = ("trueodds", "pipeline", "service")
"""Packages whose names `names` prints."""
CALLED = frozenset({"acknowledged", "data_received", "report_undecided"})
"""Functions that asyncio calls, that stand for a stored field, or whose name is an operation of the HTTP API."""

NOUNS = frozenset({"seed", "speed", "embed", "shed"})
PARTICIPLES = frozenset(
    {"known", "held", "kept", "shown", "given", "found", "told", "said", "done", "taken", "made", "lost", "sent"}
    | {"written", "drawn", "gone", "seen", "chosen", "met"}
)
PREDICATES = frozenset({"is", "was", "has", "are", "if"})
"""Words that make a predicate or a condition of a name, such as `is_served`: it ends with a participle as it should."""
TERMS = frozenset({"done", "expected", "labelled", "observed", "ordered", "predicted", "served", "weighted"})
"""Terms of the field: expected / observed positives, the predicted class, labelled rows, ordered classes, weighted
means, the served version beside a candidate, and the units of a bar that are done. Each may be a name alone.
"""
STORED = frozenset(
    {"acknowledged", "acted", "answered", "assumed", "capped", "chosen", "confirmed", "contradicted", "corrected"}
    | {"crowded", "declined", "held", "known", "matured", "mixed", "nll_if_rounded", "published", "recalibrated"}
    | {"refused", "repeated", "replaced", "resized", "stored", "tried", "unlabelled"}
    | {"abstained", "escalated", "failed", "fired", "kept", "removed", "restored", "taken", "truncated", "voided"}
    | {"max_observed", "max_pinned", "max_pipelined"}
)
"""Keys of JSON bodies, files, tables, settings and state dicts: a field that is written under its name keeps it."""
ENTRIES = frozenset({"__init__.py", "__main__.py", "command.py", "errors.py", "kind.py"})
"""File names that stand for the same role in each folder."""
MIRRORS = ("cli", "flows", "schemas", "shapes")
"""Folders whose files have the name of what they run or describe: a command, a flow, a part of a report, a net."""
FORMS = ("trueodds/client/", "trueodds/reports/schemas/")
"""Folders of forms on the wire, such as a client's form of a body. A class has the name of what it is a form of."""


def sentences(text: str) -> Iterator[str]:
    """Split a paragraph into sentences. A line break or an abbreviation ends none."""
    text = re.sub(r"\b(e\.g|i\.e|vs|cf|et al|Eq|Fig|Sec)\.", r"\1", " ".join(text.split()))
    yield from re.split(r"(?<=[.!?:])[)\"']*\s+(?=[\"'(`*]*[A-Z`0-9])|(?<=:)\s+(?=[a-z])", text)


def words(sentence: str) -> int:
    """Count words; a code span or a link target counts as one."""
    return len([word for word in sentence.split() if re.search(r"\w", word)])


def long_sentences(page: Path) -> Iterator[tuple[int, str]]:
    """Yield line and message of each sentence of a page that is longer than WORDS, or CELL_WORDS in a table."""
    table = 0
    for token in MarkdownIt("commonmark").enable("table").parse(page.read_text(encoding="utf-8")):
        table += {"table_open": 1, "table_close": -1}.get(token.type, 0)
        if token.type != "inline" or token.children is None:
            continue
        most = CELL_WORDS if table else WORDS
        text = "".join("CODE" if part.type == "code_inline" else part.content or " " for part in token.children)
        for sentence in sentences(text):
            if (count := words(sentence)) > most:
                yield (token.map or [0])[0] + 1, f"{count} words, {most} are allowed: {sentence[:70]} ..."


@lru_cache(maxsize=1)
def _parse(text: str) -> ast.Module:
    return ast.parse(text)


def parse(file: Path) -> ast.Module:
    """Parse a file. Checks that follow each other on a file share the tree."""
    return _parse(file.read_text(encoding="utf-8"))


@cache
def classes_in(text: str) -> list[tuple[int, str]]:
    """List line and name of each public class of a module."""
    body = _parse(text).body
    return [(part.lineno, part.name) for part in body if isinstance(part, ast.ClassDef) and part.name[0] != "_"]


def blocks(module: ast.Module) -> Iterator[ast.AST]:
    """Yield the module and each statement or part of one, without their expressions, which are most of a tree."""
    waiting: list[ast.AST] = [module]
    while waiting:
        node = waiting.pop()
        yield node
        for field in ("cases", "finalbody", "orelse", "handlers", "body"):
            if isinstance(parts := getattr(node, field, None), list):
                waiting += reversed(parts)


def docstrings(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and text of each docstring: of the module, its classes and functions, and of constants and fields."""
    for node in blocks(module):
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        owner = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        for before, part in zip([None, *body], body, strict=False):
            if not isinstance(part, ast.Expr) or not isinstance(part.value, ast.Constant):
                continue
            text, described = part.value.value, isinstance(before, ast.Assign | ast.AnnAssign)
            if isinstance(text, str) and (described or (before is None and owner)):
                yield part.lineno, text


def beginnings(file: Path) -> Iterator[tuple[int, str]]:
    """Yield line and message of each docstring that begins with one of BANNED."""
    for line, text in docstrings(parse(file)):
        first = re.match(r"\w+", text.strip())
        if first and first.group() in BANNED:
            yield line, f"a docstring begins with {first.group()!r}; begin with a verb or a noun: {text.strip()[:60]}"


def is_participle(name: str) -> bool:
    """Return whether a name is a participle or ends with one, such as `held` or `read_rounded`. A predicate is none."""
    *first, last = name.strip("_").split("_")
    if name.strip("_") in TERMS or PREDICATES & {*first}:
        return False
    ending = len(last) > 4 and last.endswith("ed") and not last.endswith("eed") and last not in NOUNS
    return ending or (not first and last in PARTICIPLES)


def names(file: Path) -> Iterator[tuple[int, str]]:
    """Yield line and name of each function, parameter, field and constant that ends with a participle."""
    cure = "a name that leaves a function is a noun, a verb or a predicate"
    for node in blocks(parse(file)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if is_participle(node.name) and node.name not in CALLED:
                yield node.lineno, f"function {node.name}; {cure}"
            for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
                if is_participle(argument.arg):
                    yield argument.lineno, f"parameter {argument.arg} of {node.name}; {cure}"
        elif isinstance(node, ast.ClassDef | ast.Module):
            for part in node.body:
                target = part.target if isinstance(part, ast.AnnAssign) else None
                if isinstance(target, ast.Name) and is_participle(target.id) and target.id not in STORED:
                    yield part.lineno, f"attribute {target.id} of {getattr(node, 'name', 'the module')}; {cure}"


def twice(files: list[Path]) -> Iterator[str]:
    """Yield class names that stand for two things, and file names that a package has twice."""
    classes, rooms = defaultdict(list), defaultdict(list)
    for file in files:
        if file.name not in ENTRIES and file.parent.name not in MIRRORS:
            rooms[file.parts[0], file.name].append(str(file))
        for line, name in classes_in(file.read_text(encoding="utf-8")):
            classes[name].append(f"{file}:{line}")
    for name, places in sorted(classes.items()):
        if len([place for place in places if not place.startswith(FORMS)]) > 1:
            yield f"class {name} stands for two things: {', '.join(places)}"
    for (package, name), places in sorted(rooms.items()):
        if len(places) > 1:
            yield f"file {name} stands for two things in {package}: {', '.join(places)}"


def misnomers_of(file: Path) -> list[str]:
    """List the names in a file that are participles, and note its classes for `twice`."""
    classes_in(file.read_text(encoding="utf-8"))
    return [f"{file}:{line}: {text}" for line, text in names(file)]


def misnomers(files: list[Path]) -> list[str]:
    """List the names in some files that are participles or stand for two things."""
    return [text for file in files for text in misnomers_of(file)] + list(twice(files))


def files_under(paths: list[str], suffix: str) -> list[Path]:
    """List the files with a suffix among the paths and under them."""
    found = []
    for path in map(Path, paths):
        found += [path] if path.suffix == suffix else sorted(path.rglob(f"*{suffix}"))
    return [file for file in found if "__pycache__" not in file.parts and str(file) not in UNREAD]


def main(arguments: list[str]) -> int:
    """Print the findings under the paths given, or under all that the checks read."""
    if arguments[:1] == ["names"]:
        listing = misnomers(files_under(arguments[1:] or list(NAMED), ".py"))
        print("\n".join(listing), end="\n" if listing else "")
        return 1 if listing else 0
    pages = files_under(arguments or ["README.md", "docs"], ".md")
    code = files_under(arguments or list(CODE), ".py")
    findings = [f"{page}:{line}: {text}" for page in pages for line, text in long_sentences(page)]
    known = [] if arguments else files_under(list(NAMED), ".py")
    misnamed = list[str]()
    for file in code:
        findings += [f"{file}:{line}: {text}" for line, text in beginnings(file)]
        if file in known:
            misnamed += misnomers_of(file)
    findings += [*misnamed, *twice(known)]
    print("\n".join(findings), end="\n" if findings else "")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
