"""Vectors: tables of your own, conversion to float32, and moments of columns with missing values."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from pipeline.data import raw
from pipeline.data.raw import DataError, Raw, Vectors
from trueodds.files import FileError
from trueodds.inputs import InputError, VectorInput
from trueodds.inputs.vector import labelled_table


def read_table(path: Path, label: str, apart: tuple[str, ...] = ()) -> Raw:
    """Read a table, CSV with a header or Parquet: one column per feature, and `label` with the class of each row.

    Classes are in the order of their names; whole numbers are ordered as numbers. An empty cell is a missing value. The
    columns `apart` are no features.

    Raises:
        DataError: There is no such column, a cell is not a number, a row has no label, or there are fewer than two
            classes.
        MissingExtraError: The file is Parquet and pyarrow is not installed.
    """
    try:
        features, x, names_N = labelled_table.read(path, label, apart=apart, setting="data.label_column in params.yaml")
    except FileError as error:
        raise DataError(str(error)) from None
    names = sorted(set(names_N.tolist()))
    if all(name.removeprefix("-").isdecimal() for name in names):
        names.sort(key=int)
    place = {name: k for k, name in enumerate(names)}
    y = np.array([place[name] for name in names_N.tolist()], dtype=np.int64)
    rows = to_vectors(x, features, str(path))
    return raw.check_raw(Raw(rows, y, None, None, tuple(names), features=features), str(path))


def to_vectors(x: npt.NDArray[Any], features: Sequence[str], name: str) -> Vectors:
    """Convert rows of numbers to float32, with NaN for a missing value.

    Args:
        x: The rows.
        features: Names of the columns.
        name: Name of the data set, for messages.

    Raises:
        DataError: A name is not allowed in a card, the dtype is not a number, columns and names have different counts,
            or a value is infinite or too large for float32.
    """
    try:
        kind = VectorInput(features=list(features), missing=True)
    except ValidationError as error:
        raise DataError(f"{name}: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from None
    if x.dtype.kind not in "fiub" or x.shape[1:] != kind.shape:
        raise DataError(f"{name} is {x.dtype} of shape {x.shape}; expected numbers (rows, {len(features)})")
    try:
        return kind.check_rows(x, name)
    except InputError as error:
        raise DataError(str(error)) from None


def moments(x: npt.NDArray[Any], features: Sequence[str], name: str) -> dict[str, list[float]]:
    """Compute mean and standard deviation of each column from the values that are not missing, in float32.

    A column with one value has deviation 1, so its standardised rows are 0.

    Raises:
        DataError: A column has no value; `name` is the data set's name.
    """
    means, deviations = [], []
    for feature, column in zip(features, x.T, strict=True):
        values = column[~np.isnan(column)].astype(np.float64)
        if not len(values):
            problem = f"{name}: no training row has a value of the feature {feature!r}"
            raise DataError(f"{problem}; leave the column out, or raise data.train_size")
        deviation = np.float32(values.std()) if values.min() < values.max() else np.float32(0)
        means.append(float(np.float32(values.mean())))
        deviations.append(float(deviation) or 1.0)
    return {"mean": means, "std": deviations}
