"""Groups of labelled rows, as a table or an .npz gives them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy.typing as npt

from trueodds.importing.errors import LabelledRowsError
from trueodds.inputs import columns
from trueodds.sums.group_names import GroupNames, check_groups, names_at
from trueodds.texts import column_quotes


def of_arrays(path: Path, arrays: Mapping[str, npt.NDArray[Any]], name: str) -> GroupNames:
    """Return the groups of rows from an array of names, or of places in the array `<name>_names` (-1: no group).

    Raises:
        LabelledRowsError: There is no such array, or it holds something else.
    """
    if name not in arrays:
        raise LabelledRowsError(f"{path} has no array {name!r} of groups; it holds {', '.join(arrays)}")
    array = arrays[name]
    if array.ndim != 1 or array.dtype.kind not in "iuU":
        raise LabelledRowsError(
            f"{path}: {name} has shape {array.shape} and type {array.dtype}; expected one text or whole number per row"
        )
    if (listed := arrays.get(f"{name}_names")) is not None and array.dtype.kind in "iu":
        try:
            array = names_at(array, listed)
        except IndexError as error:
            raise LabelledRowsError(f"{path}: {name}: {error}") from None
    return check_groups(array.tolist(), len(array))


def of_table(path: Path, name: str, label: str) -> GroupNames:
    """Return the groups of rows from a column of a table. An empty cell is no group.

    Raises:
        LabelledRowsError: There is no such column, or it holds the labels.
        FileError: The table cannot be read.
    """
    header = columns.names(path)
    if name not in header or name == label:
        problem = "holds the labels" if name == label else f"is not one of {column_quotes(header)}"
        raise LabelledRowsError(f"{path}: the column of groups, {name!r}, {problem}; name another: --groups")
    cells = columns.read(path, (), [name]).texts[name].as_classes()
    named = zip(cells.as_list(), cells.is_known_N.tolist(), strict=True)
    return check_groups([group if known else None for group, known in named], len(cells))


def check_any(path: Path | str, groups_N: GroupNames, name: str) -> None:
    """Check that some row has a group.

    Raises:
        LabelledRowsError: No row has one.
    """
    if all(group is None for group in groups_N.tolist()):
        raise LabelledRowsError(
            f"{path}: {name} is empty in every row; name the column of the groups, or leave --groups out"
        )
