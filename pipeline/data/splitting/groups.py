"""Groups of rows that belong together, such as the images of one patient; each group is in one split only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.config import Data
from pipeline.data.raw import DataError, ImageFiles, Raw
from trueodds.errors import nearest
from trueodds.evaluation.splits import Index
from trueodds.files import FileError
from trueodds.inputs import columns
from trueodds.texts import plural, quotes

FOLDER = "folder"
"""Name that selects the groups of an image folder: train/<class>/<group>/."""
Groups = npt.NDArray[np.int64]


def of(raw: Raw, path: Path | None, params: Data) -> Raw:
    """Return `raw` with the groups that `data.group_column` names.

    Args:
        raw: The data set.
        path: Its file or folder; None for a built-in one.
        params: The section `data` of params.yaml.

    Raises:
        DataError: There is no such column, array or folder, or a row has no group.
    """
    name = params.group_column or ""
    if path is None:
        problem = f"data.group_column is {name!r}, and the built-in data set {params.dataset} has no groups"
        raise DataError(f"{problem}; set it to null")
    if path.is_dir():
        return of_folder(raw, path, name)
    if path.suffix in columns.SUFFIXES:
        return of_table(raw, path, name)
    return of_arrays(raw, path, name)


def check_column(path: Path, params: Data) -> None:
    """Check that a table has the column of `data.group_column`. An unnamed column would be read as a feature.

    Raises:
        DataError: It has no such column, or the column holds the labels.
    """
    column, label = params.group_column, params.label_column
    if column is None:
        return
    try:
        header = columns.names(path)
    except FileError as error:
        raise DataError(str(error)) from None
    if column not in header or column == label:
        problem = f"data.group_column is {column!r}, and {path} has the columns {quotes(header)}"
        cure = f"name one of them other than that of the labels ({label!r}), or set it to null"
        raise DataError(f"{problem}; {cure}.{nearest(column, header)}")


def of_table(raw: Raw, path: Path, column: str) -> Raw:
    """Return `raw` with the groups in a column of its table, which `check_column` found.

    Raises:
        DataError: A row has no group.
    """
    try:
        names = columns.read(path, (), [column]).texts[column]
    except FileError as error:
        raise DataError(str(error)) from None
    if not names.is_known_N.all():
        row = int(names.is_known_N.argmin()) + 2
        raise DataError(f"{path}, row {row} has no {column} (data.group_column); give every row a group")
    return replace(raw, groups={"train": names.code_N.astype(np.int64)})


def of_arrays(raw: Raw, path: Path, name: str) -> Raw:
    """Return `raw` with the groups of an .npz: the array `name`, or `name`_train and `name`_test with a test split.

    Raises:
        DataError: There is no such array, or it does not have one group per row.
    """
    rows = {"train": len(raw.y_train), **({} if raw.y_test is None else {"test": len(raw.y_test)})}
    wanted = {split: f"{name}_{split}" if len(rows) > 1 else name for split in rows}
    with np.load(path, allow_pickle=False) as file:
        if missing := [array for array in wanted.values() if array not in file.files]:
            problem = f"data.group_column is {name!r}, and {path} has no array {missing[0]}"
            raise DataError(f"{problem}; it has {quotes(file.files)}. Add it, one group per row, or set it to null")
        names = {split: np.asarray(file[array]) for split, array in wanted.items()}
    for split, array in names.items():
        if array.shape != (rows[split],):
            expected = f"expected ({rows[split]},), one group per row"
            raise DataError(f"{path}: {wanted[split]} has shape {array.shape}; {expected}")
    return replace(raw, groups=_numbers_of(names))


def of_folder(raw: Raw, folder: Path, name: str) -> Raw:
    """Return `raw` with the groups of an image folder: the first folder below that of the class.

    Raises:
        DataError: The name is not FOLDER, the rows are not image files, or an image is in no such folder.
    """
    if name != FOLDER:
        raise _not_of_folder("data.group_column", name, folder)
    return replace(raw, groups=_numbers_of(names_of_folders(raw, folder, "data.group_column")))


def names_of_folders(raw: Raw, folder: Path, setting: str) -> dict[str, npt.NDArray[np.str_]]:
    """Return the first folder below that of the class for each row of the splits of an image folder.

    `setting` is the parameter that asks for it, for messages.

    Raises:
        DataError: The rows are not image files, or an image is in no such folder.
    """
    files = {split: x for split, x in rows_of(raw).items() if isinstance(x, ImageFiles)}
    if len(files) < len(rows_of(raw)):
        raise _not_of_folder(setting, FOLDER, folder)
    names = {}
    for split, x in files.items():
        inside = [path.relative_to(folder).parts for path in x.paths]
        if apart := [parts for parts in inside if len(parts) < 4]:  # <split>/<class>/<group>/.../<image>
            problem = f"{folder / Path(*apart[0])} is not in the folder of a group ({setting}: {FOLDER})"
            raise DataError(f"{problem}; expected {folder}/{apart[0][0]}/<class>/<group>/{apart[0][-1]}")
        names[split] = np.array([parts[2] for parts in inside])
    return names


def draw(
    labels_N: npt.NDArray[np.int64], groups_N: Groups, size: int, seed: int, *, leave: int = 1
) -> tuple[Index, Index]:
    """Draw whole groups with about `size` rows together.

    Each class gives its share of rows. A group counts to the class of most of its rows. The number of rows differs from
    `size` by at most half the largest group, unless that would draw no group or leave fewer than `leave` groups.

    Args:
        labels_N: Class of each row.
        groups_N: Group of each row.
        size: Number of rows to draw.
        seed: Seed of the random order.
        leave: Smallest number of groups that remain.

    Returns:
        (drawn, rest), the indices of rows, both sorted.

    Raises:
        ValueError: There are at most `leave` groups, or `size` is not between 1 and the number of rows minus 1.

    Examples:
        >>> draw(np.array([0, 0, 1, 1]), np.array([5, 5, 6, 6]), 2, seed=0)
        (array([2, 3]), array([0, 1]))
    """
    if not 1 <= size < len(labels_N):
        raise ValueError(f"cannot draw {size:,} of {len(labels_N):,} rows; allowed is 1..{len(labels_N) - 1:,}")
    _, code_N, rows_G = np.unique(groups_N, return_inverse=True, return_counts=True)
    if len(rows_G) <= leave:
        raise ValueError(
            f"{plural(len(rows_G), 'group')} of rows for {leave + 1} parts; each part needs at least one group: in"
            " data.group_column name a column with more groups"
        )
    order_G = np.random.default_rng(seed).permutation(len(rows_G))
    class_G = _commonest(labels_N, code_N, len(rows_G))
    is_drawn_G = np.zeros(len(rows_G), dtype=bool)
    owed = 0.0  # rows that are missing from the classes so far
    for k in np.unique(class_G):
        of_class = order_G[class_G[order_G] == k]
        owed = _fill(of_class, rows_G, owed + size * float(rows_G[of_class].sum()) / len(labels_N), is_drawn_G)
    if not is_drawn_G.any():
        is_drawn_G[np.abs(rows_G - size).argmin()] = True
    by_size = sorted(np.flatnonzero(is_drawn_G), key=lambda group: rows_G[group])
    is_drawn_G[by_size[: max(0, len(by_size) + leave - len(rows_G))]] = False
    return np.flatnonzero(is_drawn_G[code_N]), np.flatnonzero(~is_drawn_G[code_N])


def _commonest(labels_N: npt.NDArray[np.int64], code_N: Index, groups: int) -> npt.NDArray[np.int64]:
    """Return the class that most rows of each group have, the first of equals."""
    classes = int(labels_N.max()) + 1
    pairs, counts = np.unique(code_N * classes + labels_N, return_counts=True)
    group, label = np.divmod(pairs, classes)
    order = np.lexsort((-label, counts))
    class_G = np.empty(groups, dtype=np.int64)
    class_G[group[order]] = label[order]  # of a group's assignments the last one, with most rows, remains
    return class_G


def _fill(groups: Index, rows_G: npt.NDArray[np.int64], size: float, is_drawn_G: npt.NDArray[np.bool_]) -> float:
    """Mark groups, in their order, that fit into `size` rows, and one more if that comes nearer.

    Return the rows that are still missing; the number is negative if too many were drawn.
    """
    for group in groups:
        if rows_G[group] <= size:
            is_drawn_G[group] = True
            size -= float(rows_G[group])
    left = groups[~is_drawn_G[groups]]
    if len(left):
        best = left[np.abs(rows_G[left] - size).argmin()]
        if abs(rows_G[best] - size) < abs(size):
            is_drawn_G[best] = True
            size -= float(rows_G[best])
    return size


def counts(groups: Mapping[str, Groups]) -> dict[str, dict[str, int]]:
    """Count each part's groups, and its rows whose group also has training rows."""
    return {
        part: {
            "groups": len(np.unique(groups_N)),
            "shared_rows": 0 if part == "train" else int(np.isin(groups_N, groups["train"]).sum()),
        }
        for part, groups_N in groups.items()
    }


def notes(column: str, groups: Mapping[str, Groups]) -> list[str]:
    """Return sentences about the groups of the parts; `groups` has the group of each row of each part."""
    table = counts(groups)
    counted = ", ".join(f"{entry['groups']:,} in {part}" for part, entry in table.items())
    lines = [
        f"Groups of rows (data.group_column: {column}): {counted}. Intervals and tests assume independent rows; if the"
        " rows of a group resemble each other, intervals are too narrow."
    ]
    for part, entry in table.items():
        if shared := entry["shared_rows"]:
            lines.append(f"{shared:,} of {len(groups[part]):,} {part} rows are in groups that also have training rows.")
    return lines


def _not_of_folder(setting: str, name: str, folder: Path) -> DataError:
    """Return the error for a folder that has no such groups."""
    return DataError(
        f"{setting} is {name!r}, and {folder} is a folder; allowed is {FOLDER!r}, for images in"
        " train/<class>/<group>/. Set it to null, or use a table with a column of groups"
    )


def rows_of(raw: Raw) -> dict[str, Any]:
    """Return the rows of each split that there is."""
    every = {"train": raw.x_train, "val": raw.x_val, "test": raw.x_test}
    return {split: x for split, x in every.items() if x is not None}


def _numbers_of(names: Mapping[str, npt.NDArray[Any]]) -> dict[str, Groups]:
    """Replace group names by numbers that hold for all splits."""
    _, code_N = np.unique(np.concatenate(list(names.values())), return_inverse=True)
    cuts = np.cumsum([len(array) for array in names.values()])[:-1]
    return dict(zip(names, np.split(code_N.astype(np.int64), cuts), strict=True))
