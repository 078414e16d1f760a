"""Tables that come with scikit-learn: breast cancer (569 rows, 2 classes) and wine (178 rows, 3 classes)."""

from __future__ import annotations

import numpy as np

from pipeline.data import vectors
from pipeline.data.raw import Raw
from trueodds.evaluation.splits import balanced

TEST_ROWS = {"breast_cancer": 190, "wine": 60}


def read(name: str) -> Raw:
    """A third of the rows as test rows, class-balanced, drawn once for ever (seed 0)."""
    from sklearn import datasets

    table = {"breast_cancer": datasets.load_breast_cancer, "wine": datasets.load_wine}[name]()
    features, classes = (tuple(map(str, names)) for names in (table.feature_names, table.target_names))
    x, y = vectors.checked(table.data, features, name), table.target.astype(np.int64)
    test, train = balanced(y, TEST_ROWS[name], seed=0)
    return Raw(x[train], y[train], x[test], y[test], classes, features=features)
