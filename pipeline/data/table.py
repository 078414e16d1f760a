"""Tables of your own: CSV with a header, or Parquet; a column for each feature, and one of the labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pipeline.data import vectors
from pipeline.data.raw import DataError, Raw, checked
from trueodds.files import FileError
from trueodds.importing import tables
from trueodds.importing.errors import LabelledRowsError

SUFFIXES = (".csv", ".parquet")


def read(path: Path, label: str, group: str | None = None) -> Raw:
    """The rows of a table whose column `label` names the class of each; classes in the order of their names.

    Whole numbers as labels are ordered as numbers. An empty cell is a missing value. The column `group` is no feature.

    Raises:
        DataError: no such column, cells that are no numbers, rows without a label, fewer than two classes.
        MissingExtraError: a Parquet file without pyarrow.
    """
    try:
        features, x, names_N = tables.read(path, label, apart=group, setting="data.label_column in params.yaml")
    except (FileError, LabelledRowsError) as error:
        raise DataError(str(error)) from None
    names = sorted(set(names_N.tolist()))
    if all(name.removeprefix("-").isdecimal() for name in names):
        names.sort(key=int)
    place = {name: k for k, name in enumerate(names)}
    y = np.array([place[name] for name in names_N.tolist()], dtype=np.int64)
    rows = vectors.checked(x, features, str(path))
    return checked(Raw(rows, y, None, None, tuple(names), features=features), str(path))
