"""Rows that several tests of metrics draw or convert."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from trueodds.metrics import CELLS, CalibrationSums, cell_of

Array = npt.NDArray[np.float64]


def sums_of(rows: Sequence[tuple[float, int]]) -> CalibrationSums:
    """The sums of pairs of confidence and correctness."""
    return CalibrationSums.from_top([c for c, _ in rows], [a for _, a in rows])


def drawn(n: int, classes: int, seed: int = 0, spread: float = 0.3) -> tuple[Array, npt.NDArray[np.intp]]:
    """Probabilities of a Dirichlet distribution, with labels that do not depend on them."""
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.full(classes, spread), n), rng.integers(0, classes, n)


def counts(confidence: npt.ArrayLike) -> Array:
    """The number of answers in each cell."""
    return np.bincount(cell_of(confidence), minlength=CELLS).astype(np.float64)
