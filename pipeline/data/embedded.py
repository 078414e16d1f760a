"""Data sets that ship with scikit-learn and need no download: digits, breast cancer and wine.

Their test rows are class-balanced and always the same (seed 0).
"""

from __future__ import annotations

import numpy as np

from pipeline.data import vectors
from pipeline.data.raw import Raw
from trueodds.evaluation.splits import balanced_split

TEST_ROWS = {"digits": 600, "breast_cancer": 190, "wine": 60}


def read_digits() -> Raw:
    """Read 1,797 grey images of 8 x 8 handwritten digits; pixels 0..16 become uint8 by round(15.9375 v)."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    x = np.rint(15.9375 * digits.images).astype(np.uint8)[..., None]
    y = digits.target.astype(np.int64)
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
