"""Groups of rows, such as the tags of requests: one name per row, or none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set, Sized
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from trueodds.sums.inputs import without_tensors
from trueodds.texts import short

GroupNames = npt.NDArray[np.object_]
"""Name of each row's group (str), or None for a row without one. Shape (N,)."""
GivenGroups: TypeAlias = Any
"""Groups as a caller gives them: one string, integer or None per row."""
_MISSING = ("NAType", "NaTType")
"""Types of a missing value in pandas, which this package does not import."""


def check_length(groups: object, rows: int) -> None:
    """Check that there is one group per row.

    Raises:
        ValueError: `groups` is no sequence, or has another length.
    """
    # A set has no order. A mapping and a table of pandas or polars iterate over their names, not over rows
    no_rows = isinstance(groups, str | bytes | Set | Mapping) or hasattr(groups, "columns")
    if no_rows or not isinstance(groups, Sized) or getattr(groups, "ndim", 1) == 0:
        raise ValueError(f"groups is {short(groups)}; allowed is a sequence with the name of each row's group, or None")
    if len(groups) != rows:
        raise ValueError(f"groups has {len(groups)} entries for {rows} rows; give one entry per row, None for no group")


def check_groups(groups: Iterable[Any], rows: int) -> GroupNames:
    """Check the groups of rows and return them as names.

    Args:
        groups: One entry per row: a string, an integer (its digits become the name), or None. NaN, pandas' missing
            values and the empty string stand for None. Arrays of Arrow and tensors of torch are read by value.
        rows: Number of rows.

    Raises:
        ValueError: There is another number of entries, or an entry is of another type.
    """
    check_length(groups, rows)
    # Entries of an Arrow array or a tensor are objects of their own, not the values
    groups = groups.to_pylist() if hasattr(groups, "to_pylist") else without_tensors(groups)
    names = np.empty(rows, dtype=object)
    names[:] = [name if type(name) is str and name else _name(name, row) for row, name in enumerate(groups)]
    return names


def names_at(place_N: npt.NDArray[np.integer], names: npt.NDArray[np.str_]) -> GroupNames:
    """Return the name of each row's group by its place among the names; None where the place is -1.

    Raises:
        IndexError: A place is not one of the names.
    """
    if place_N.min(initial=-1) < -1 or place_N.max(initial=-1) >= len(names):
        raise IndexError(f"a place among the names is outside [-1, {len(names)})")
    found: GroupNames = np.array([*names.tolist(), None], dtype=object)[place_N]
    return found


def to_arrays(name: str, groups_N: GroupNames) -> dict[str, npt.NDArray[Any]]:
    """Return groups as arrays for a file: places in the array `<name>_names`, in the array `name`; -1 is no group."""
    names = sorted({group for group in groups_N.tolist() if group is not None})
    place = {group: k for k, group in enumerate(names)}
    place_N = np.array([-1 if group is None else place[group] for group in groups_N.tolist()], np.int64)
    return {name: place_N, f"{name}_names": np.array(names, np.str_)}


def from_arrays(arrays: Mapping[str, npt.NDArray[Any]], name: str, rows: int) -> GroupNames | None:
    """Return the groups that `to_arrays` made arrays of; None if there are none.

    Raises:
        ValueError: There is another number of rows, no array of names, or a place is not one of the names.
    """
    if name not in arrays:
        return None
    names = arrays.get(f"{name}_names")
    if names is None or arrays[name].shape != (rows,) or arrays[name].dtype.kind not in "iu":
        raise ValueError(f"{name} must hold {rows} places in the array {name}_names; write the file again")
    try:
        return names_at(arrays[name], names)
    except IndexError as error:
        raise ValueError(f"{name}: {error}; write the file again") from None


def _name(value: Any, row: int) -> str | None:
    if getattr(value, "ndim", None) == 0:  # a scalar of NumPy or torch
        value = value.item()
    if value is None or type(value).__name__ in _MISSING:
        return None
    if isinstance(value, str):
        return str(value) or None
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float | np.floating) and np.isnan(value):
        return None
    raise ValueError(
        f"groups[{row}] is {short(value)}; allowed are strings, integers, and None for a row without a group"
    )
