"""Which source files a training run is made by, and their hashes: no dates, no machine.

Tables of names (methods, nets, recipes) and params.yaml's types are not among them: what they say of a run is in its
Plan as values.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("trueodds", "pipeline")


def code_hashes(modules: Iterable[str]) -> dict[str, str]:
    """File -> SHA-256, of the named modules and all of this project that they import, at once or later, wherever the
    import stands.

    Imports under `if TYPE_CHECKING` run no code and do not count. An import from a package counts the module that it
    names, and the package's `__init__` only where it names something else: beyond telemetry's switches, an `__init__`
    here only gives names to what its modules hold.
    """
    hashes: dict[str, str] = {}
    waiting = [file for name in modules if (file := _file(name)) is not None]
    while waiting:
        file = waiting.pop()
        if (name := file.relative_to(ROOT).as_posix()) not in hashes:
            hashes[name], imported = _scanned(file, file.stat().st_mtime_ns)
            waiting += imported
    return dict(sorted(hashes.items()))


@cache
def _scanned(file: Path, changed_ns: int) -> tuple[str, tuple[Path, ...]]:
    """SHA-256 and imports of a file; kept, for a study plans hundreds of runs that share most of their files."""
    content = file.read_bytes()
    return hashlib.sha256(content).hexdigest(), tuple(_imports(ast.parse(content)))


def _imports(node: ast.AST) -> Iterator[Path]:
    """The project's files that the code below a node imports."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        names = [
            module if _file(module := f"{node.module}.{alias.name}") is not None else str(node.module)
            for alias in node.names
        ]
    else:
        typing_only = isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for child in [] if typing_only else ast.iter_child_nodes(node):
            yield from _imports(child)
        return
    yield from filter(None, (_file(name) for name in names))


def _file(module: str) -> Path | None:
    """The source of a module of this project; None for what is no module, or another's."""
    if module.partition(".")[0] not in PACKAGES:
        return None
    path = ROOT.joinpath(*module.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)
