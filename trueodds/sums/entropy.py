"""How uncertain the probabilities say they are, right or wrong."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.special import xlogy

from trueodds.sums.rows import checked_blocks


def mean_entropy(probabilities_NC: npt.ArrayLike) -> float:
    """Average uncertainty: the mean over rows of -sum_k p_k log p_k, in nats, in [0, log C].

    The horizontal axis of "ECE against average uncertainty" (Karandikar et al. 2021, figure 10): an ECE can be bought
    with answers that say nothing, and this is where that shows.

    Raises:
        ValueError: probabilities that cannot be used.

    >>> round(metrics.mean_entropy([[0.5, 0.5], [1.0, 0.0]]), 4)
    0.3466
    """
    total, rows = 0.0, 0
    for _, block in checked_blocks(probabilities_NC):
        wide = block.astype(np.float64, copy=False)
        total -= float(xlogy(wide, wide).sum())
        rows += len(wide)
    return total / rows
