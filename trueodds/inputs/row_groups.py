"""Groups of labelled rows, as a table, an .npz, or a table beside files gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trueodds.errors import nearest
from trueodds.files import FileError
from trueodds.inputs import columns
from trueodds.sums.group_names import GroupNames, check_groups, names_at
from trueodds.texts import column_quotes

OPTION = "--groups"
TABLES = tuple(f"groups{suffix}" for suffix in columns.SUFFIXES)
"""Names of the table beside files that has their groups."""
FILE = "file"
"""Its column with the path of each file."""


def of_arrays(path: Path, arrays: Mapping[str, npt.NDArray[Any]], name: str) -> GroupNames:
    """Return the groups of rows from an array of names, or of places in the array `<name>_names` (-1: no group).

    Raises:
        FileError: There is no such array, or it holds something else.
    """
    if name not in arrays:
        raise FileError(f"{path} has no array {name!r} of groups; it holds {', '.join(arrays)}")
    array = arrays[name]
    if array.ndim != 1 or array.dtype.kind not in "iuU":
        raise FileError(
            f"{path}: {name} has shape {array.shape} and type {array.dtype}; expected one text or whole number per row"
        )
    if (listed := arrays.get(f"{name}_names")) is not None and array.dtype.kind in "iu":
        try:
            array = names_at(array, listed)
        except IndexError as error:
            raise FileError(f"{path}: {name}: {error}") from None
    return check_groups(array.tolist(), len(array))


def of_table(path: Path, name: str, label: str, *, setting: str = OPTION) -> GroupNames:
    """Return the groups of rows from a column of a table. An empty cell is no group.

    Args:
        path: The table.
        name: The column.
        label: Column of the labels, which cannot hold the groups.
        setting: Name of the option that names the column, for messages.

    Raises:
        FileError: There is no such column, it holds the labels, or the table cannot be read.
    """
    check_column(path, name, label, setting=setting)
    return _of_column(path, name)


def check_column(path: Path, name: str, label: str, *, setting: str = OPTION) -> None:
    """Check that a table has a column for the groups. The arguments are those of `of_table`.

    Raises:
        FileError: There is no such column, or it holds the labels.
    """
    header = columns.names(path)
    if name not in header or name == label:
        problem = "holds the labels" if name == label else f"is not one of {column_quotes(header)}"
        near = "" if name == label else nearest(name, header)
        raise FileError(f"{path}: the column of groups, {name!r}, {problem}; name another: {setting}.{near}")


def of_files(folder: Path, files: Sequence[Path], name: str, *, setting: str = OPTION) -> GroupNames:
    """Return the groups of files from the table groups.csv or groups.parquet in their folder.

    The table has a column `file` of paths in the folder, such as train/cat/1.png, and a column `name` of groups. A file
    without a line, or with an empty cell, has no group.

    Args:
        folder: The folder.
        files: Files in it, at any depth.
        name: The column of groups.
        setting: Name of the option that names the column, for messages.

    Raises:
        FileError: There is no such table, it has no such columns, or a line names a file twice or none of these files.
    """
    path = next((folder / table for table in TABLES if (folder / table).is_file()), None)
    if path is None:
        problem = f"{folder} has no table {TABLES[0]} with the groups of its files ({setting}: {name})"
        raise FileError(f"{problem}; add one with the columns {FILE!r} and {name!r}, or leave {setting} out")
    header = columns.names(path)
    for wanted in (FILE, name):
        if wanted not in header:
            problem = f"{path} has no column {wanted!r}; it has {column_quotes(header)}"
            raise FileError(f"{problem}; {FILE!r} holds the files, and {setting} names the groups")
    if name == FILE:
        raise FileError(f"{path}: the column {FILE!r} holds the files; name the column of the groups: {setting}")
    place = {file.relative_to(folder).as_posix(): row for row, file in enumerate(files)}
    groups_N = np.full(len(files), None, dtype=object)
    seen: set[str] = set()
    listed = columns.read(path, (), [FILE]).texts[FILE].as_list()
    for row, (file, group) in enumerate(zip(listed, _of_column(path, name).tolist(), strict=True), columns.FIRST):
        if file not in place:
            example = next(iter(place), "")
            cure = f"expected the path of one of the {len(place):,} files, such as {example}"
            raise FileError(f"{path}, row {row} names the file {file!r}, which is not one of the rows; {cure}")
        if file in seen:
            raise FileError(f"{path}, row {row} names the file {file!r} again; list each file once")
        seen.add(file)
        groups_N[place[file]] = group
    return groups_N


def check_any(path: Path | str, groups_N: GroupNames, name: str, *, setting: str = OPTION) -> None:
    """Check that some row has a group.

    Raises:
        FileError: No row has one.
    """
    if all(group is None for group in groups_N.tolist()):
        raise FileError(f"{path}: {name} is empty in every row; name the column of the groups, or leave {setting} out")


def _of_column(path: Path, name: str) -> GroupNames:
    cells = columns.read(path, (), [name]).texts[name].as_classes()
    named = zip(cells.as_list(), cells.is_known_N.tolist(), strict=True)
    return check_groups([group if known else None for group, known in named], len(cells))
