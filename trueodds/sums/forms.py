"""Forms in which users give two classes and labels: p(positive) alone, and the names of classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import numpy as np
import numpy.typing as npt

from trueodds.errors import ConfigError, unknown
from trueodds.sums.inputs import as_array, both_classes, without_tensors
from trueodds.sums.sums import CalibrationSums


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
    p_NC = as_columns(predictions)
    if classes is None or labels is None:
        return p_NC, labels
    shape = np.shape(without_tensors(p_NC))
    return p_NC, label_indices(labels, classes, shape[1] if len(shape) == 2 else len(classes))


def as_columns(probabilities: npt.ArrayLike) -> npt.ArrayLike:
    """Return N x 2 for p(positive) of two classes, shape (N,). Anything else is returned as it is."""
    return both_classes(probabilities) if is_vector(probabilities) else probabilities


def label_indices(labels: npt.ArrayLike, classes: Sequence[object], columns: int) -> list[int]:
    """Return the position of each label among the classes, which name the columns.

    Raises:
        ConfigError: A label is not one of the classes, or the number of names differs from the number of columns.
    """
    if len(classes) != columns:
        raise ConfigError(
            f"classes has {len(classes)} names for {columns} columns; give one name for each column, in order"
        )
    place = {name: k for k, name in enumerate(classes)}
    names = as_array(labels, "labels").tolist()
    for name in names:
        if name not in place:
            raise unknown("label", name, map(str, classes))
    return [place[name] for name in names]


def is_vector(values: object) -> bool:
    """Return whether these are values of shape (N,), not empty. A list of rows is not converted to learn it."""
    if isinstance(values, list | tuple):
        return len(values) > 0 and np.ndim(without_tensors(values[0])) == 0
    return np.ndim(without_tensors(values)) == 1 and np.size(without_tensors(values)) > 0
