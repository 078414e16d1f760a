"""Measures the folders of a checkout: files, depth of imports, lines. None of its code is run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

from tools.imports import folder_parts, imported_files, sources


@dataclass(frozen=True)
class Folder:
    """The measurements of one folder."""

    folder: str
    rooms: int
    """Number of files, including sub-folders, without empty `__init__` files."""
    floors: int
    """Depth of the import graph of its files."""
    parts: int
    """Number of its direct modules and sub-packages."""
    part_floors: int
    """Depth of the import graph of its direct parts, where a sub-package is one part."""
    lines: int


def floors(graph: Mapping[Any, set[Any]]) -> int:
    """Return the depth of a graph: each node is one floor above the highest node that it points to."""
    height: dict[Any, int] = {}
    for node in TopologicalSorter(graph).static_order():
        height[node] = 1 + max((height[other] for other in graph.get(node, ())), default=0)
    return max(height.values(), default=0)


def measure_folder(root: Path, folder: str) -> Folder:
    """Measure one folder."""
    files = [file for file in sources(root, folder) if file.stat().st_size]
    inside = {file: imported_files(root)[file] & set(files) for file in files}
    parts = folder_parts(root, folder)
    parts.pop("__init__", None)
    below = {part: others & set(parts) for part, others in parts.items()}
    lines = sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)
    return Folder(folder, len(files), floors(inside), len(parts), floors(below), lines)
