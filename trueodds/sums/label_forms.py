"""Forms in which users give two classes and labels: p(positive) alone, and the names of classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import numpy.typing as npt

from trueodds.errors import ConfigError
from trueodds.sums.sums import CalibrationSums
from trueodds.sums.two_columns import as_columns, as_labelled_columns


@overload
def as_rows(
    predictions: npt.ArrayLike, labels: npt.ArrayLike, classes: Sequence[object] | None = None
) -> tuple[npt.ArrayLike, npt.ArrayLike]: ...
@overload
def as_rows(
    predictions: npt.ArrayLike | CalibrationSums,
    labels: npt.ArrayLike | None,
    classes: Sequence[object] | None = None,
) -> tuple[npt.ArrayLike | CalibrationSums, npt.ArrayLike | None]: ...
def as_rows(
    predictions: npt.ArrayLike | CalibrationSums, labels: npt.ArrayLike | None, classes: Sequence[object] | None = None
) -> tuple[npt.ArrayLike | CalibrationSums, npt.ArrayLike | None]:
    """Convert the forms that users give to probabilities N x C and class indices.

    p(positive) of two classes, shape (N,), becomes N x 2. Labels become indices if `classes` names the columns.
    Everything else is returned as it is, so N x C with indices is neither copied nor checked here.

    Raises:
        ConfigError: A label is not a class, the number of names differs from the number of columns, or calibration sums
            come with names.
        ValueError: p(positive) or the labels are not numbers or names, or have missing values.
    """
    if isinstance(predictions, CalibrationSums):
        if classes is not None:
            raise ConfigError("CalibrationSums already hold their labels; leave out classes")
        return predictions, labels
    if labels is None:
        return as_columns(predictions), None
    return as_labelled_columns(predictions, labels, classes)
