"""The embedded default: scikit-learn's handwritten digits, 1,797 grey images of 8 x 8; needs no download."""

from __future__ import annotations

import numpy as np

from pipeline.data.raw import Raw
from trueodds.evaluation.splits import balanced

TEST_ROWS = 600


def read() -> Raw:
    """Pixels 0..16 become uint8 by round(15.9375 v); 600 test rows, class-balanced, drawn once for ever (seed 0)."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    x = np.rint(15.9375 * digits.images).astype(np.uint8)[..., None]
    y = digits.target.astype(np.int64)
    test, train = balanced(y, TEST_ROWS, seed=0)
    return Raw(x[train], y[train], x[test], y[test], tuple(str(digit) for digit in range(10)))
