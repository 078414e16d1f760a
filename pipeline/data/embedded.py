"""Data sets that ship with scikit-learn and need no download: digits, breast cancer and wine.

Their test rows are class-balanced and always the same (seed 0).
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline.data import vectors
from pipeline.data.raw import Raw
from trueodds.evaluation.splits import balanced_split
from trueodds.sums.inputs import Array

TEST_ROWS = {"digits": 600, "breast_cancer": 190, "wine": 60}


def read_digits() -> Raw:
    """Read 1,797 grey images of 8 x 8 handwritten digits; pixels 0..16 become uint8 by round(15.9375 v)."""
    pixels_N64, y = _digits()
    x = np.rint(15.9375 * pixels_N64).astype(np.uint8).reshape(-1, 8, 8, 1)
    test, train = balanced_split(y, TEST_ROWS["digits"], seed=0)
    return Raw(x[train], y[train], x[test], y[test], tuple(str(digit) for digit in range(10)))


def read_table(name: str) -> Raw:
    """Read a table: breast_cancer (569 rows, 2 classes) or wine (178 rows, 3 classes)."""
    from sklearn import datasets

    table = {"breast_cancer": datasets.load_breast_cancer, "wine": datasets.load_wine}[name]()
    features, classes = (tuple(map(str, names)) for names in (table.feature_names, table.target_names))
    x, y = vectors.to_vectors(table.data, features, name), table.target.astype(np.int64)
    test, train = balanced_split(y, TEST_ROWS[name], seed=0)
    return Raw(x[train], y[train], x[test], y[test], classes, features=features)


def _digits() -> tuple[Array, npt.NDArray[np.int64]]:
    """Return the pixels (N, 64) of the digits, 0..16, and the labels.

    Read from scikit-learn's file, they take no second for the import of scikit-learn, pandas and pyarrow.
    """
    package = importlib.util.find_spec("sklearn")
    for folder in (package and package.submodule_search_locations) or ():
        if (file := Path(folder) / "datasets" / "data" / "digits.csv.gz").is_file():
            table_N65 = np.loadtxt(file, delimiter=",")
            return table_N65[:, :-1], table_N65[:, -1].astype(np.int64)
    from sklearn.datasets import load_digits

    digits = load_digits()
    return digits.data, digits.target.astype(np.int64)
