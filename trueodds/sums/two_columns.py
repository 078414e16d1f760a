"""Columns of two classes from p(positive) alone, and positions of labels that are given as the names of columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from trueodds.errors import ConfigError, unknown
from trueodds.sums.frames import check_columns, check_has_order, check_index
from trueodds.sums.inputs import ROW_SUM_TOLERANCE, as_array, as_vector, both_classes, without_objects, without_tensors


def as_labelled_columns(
    probabilities: npt.ArrayLike, labels: npt.ArrayLike, classes: Sequence[object] | None
) -> tuple[npt.ArrayLike, npt.ArrayLike]:
    """Return N x 2 for p(positive) of two classes, and indices for labels that `classes` names.

    Everything else is returned as it is, so N x C with indices is neither copied nor checked here.

    Raises:
        ConfigError: A label is not a class, or the number of names differs from the number of columns. Or a data frame
            has the columns or the index of the labels in another order.
        ValueError: p(positive) or the labels are not numbers or names, or have missing values.
    """
    check_index(probabilities=probabilities, labels=labels)
    check_columns(probabilities, labels, classes)
    p_NC = as_columns(probabilities)
    if classes is None:
        return p_NC, labels
    shape = np.shape(without_tensors(p_NC))
    return p_NC, label_indices(labels, classes, shape[1] if len(shape) == 2 else len(classes))


def as_columns(probabilities: npt.ArrayLike) -> npt.ArrayLike:
    """Return N x 2 for p(positive) of two classes, shape (N,) or (N, 1). Anything else is returned as it is."""
    return both_classes(probabilities) if is_vector(probabilities) else probabilities


def label_indices(labels: npt.ArrayLike, classes: Sequence[object], columns: int) -> list[int]:
    """Return the position of each label among the classes, which name the columns.

    Raises:
        ConfigError: A label is not one of the classes, labels have several columns, a class is named twice, the number
            of names differs from the number of columns, or the names have no order, as those of a set.
    """
    check_has_order(classes)
    if len(classes) != columns:
        raise ConfigError(
            f"classes has {len(classes)} names for {columns} columns; give one name for each column, in order"
        )
    place = {name: k for k, name in enumerate(classes)}
    if len(place) < columns:
        twice = next(name for k, name in enumerate(classes) if place[name] != k)
        raise ConfigError(f"classes has the name {twice!r} twice; give each column a name of its own")
    label_N = as_vector(as_array(labels, "labels"))
    if label_N.ndim != 1:
        raise ConfigError(
            f"labels has shape {label_N.shape}; allowed is one class for each row: for one column a class pass"
            " labels.argmax(axis=1) without classes"
        )
    names = label_N.tolist()
    for name in names:
        if name not in place:
            if alike := [one for one in classes if str(one) == str(name)]:
                raise ConfigError(
                    f"the label {name!r} is of the type {type(name).__name__}, and the class {alike[0]!r} of the type"
                    f" {type(alike[0]).__name__}; give both as one type, such as classes=[str(one) for one in classes]"
                )
            raise unknown("label", name, map(str, classes))
    return [place[name] for name in names]


def is_vector(values: object) -> bool:
    """Return whether these are probabilities of one class of two: shape (N,) or (N, 1), not empty.

    A net with one sigmoid returns (N, 1), and so does a data frame with one column. If each row of (N, 1) is 1, it is
    the only class. A list of longer rows is not converted.
    """
    if isinstance(values, list | tuple) and (not values or np.shape(without_tensors(values[0])) not in ((), (1,))):
        return False
    try:
        array = without_objects(np.asarray(without_tensors(values)))
    except ValueError:  # rows of unequal lengths
        return False
    if not array.size or array.shape[1:] not in ((), (1,)):
        return False
    return array.ndim == 1 or (array.dtype.kind in "fiub" and bool((np.abs(array - 1.0) > ROW_SUM_TOLERANCE).any()))
