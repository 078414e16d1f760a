"""Columns of a table that tell nothing, or too much."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pipeline.data.raw import Labels, Vectors
from trueodds.texts import listed

FEWEST_ROWS = 10
"""Rows from which on an order or a pairing is no chance."""
_WORDS = {
    "constant": "of one value in every row, which tell a net nothing: {}",
    "row_number": "that number the rows: {}. What a net learns of them does not hold for later rows; leave them out."
    " Duplicates were looked for without them",
    "ordered": "in whose order the rows stand, as ids and times: {}. If they are such, leave them out: later rows have"
    " values that no net has learned from",
    "repeats_label": "that repeat the label, one value for each class: {}. If they are known only once the label is,"
    " leave them out: the metrics are too good",
}


def findings(x_ND: Vectors, labels_N: Labels, features: Sequence[str]) -> dict[str, list[str]]:
    """Names of columns under the keys of the following list; the rows are in the order of their file.

    constant: one value, or none at all. row_number: different whole numbers without a gap, in any order. ordered: never
    falling or never rising, with a value for every second row at least. repeats_label: a value for each class that no
    other class has; NaN is a value. Tables of fewer than FEWEST_ROWS rows are only looked through for constants.
    """
    found: dict[str, list[str]] = {kind: [] for kind in _WORDS}
    for name, column_N in zip(features, x_ND.T, strict=True):
        values, code_N = np.unique(column_N, return_inverse=True)  # NaN is one value
        if len(values) == 1:
            found["constant"].append(name)
        elif len(labels_N) < FEWEST_ROWS:
            continue
        elif _repeats(code_N, labels_N, len(values)):
            found["repeats_label"].append(name)
        elif len(values) == len(labels_N) and (np.diff(values) == 1).all() and values[0] == np.rint(values[0]):
            found["row_number"].append(name)
        elif 2 * len(values) >= len(labels_N) and _is_ordered(column_N):
            found["ordered"].append(name)
    return found


def notes(found: dict[str, list[str]]) -> list[str]:
    """A sentence for each kind of column that was found."""
    return [f"Columns {_WORDS[kind].format(listed(names))}." for kind, names in found.items() if names]


def _is_ordered(column_N: npt.NDArray[np.float32]) -> bool:
    steps = np.diff(column_N)
    return bool((steps >= 0).all() or (steps <= 0).all())


def _repeats(code_N: npt.NDArray[np.intp], labels_N: Labels, values: int) -> bool:
    classes = len(np.unique(labels_N))
    return values == classes > 1 and len(np.unique(code_N * (int(labels_N.max()) + 1) + labels_N)) == classes
