"""What metrics.json says of test rows that several people labelled."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trueodds import metrics
from trueodds.sums.inputs import check_counts


def samplewise_values(p_NC: npt.ArrayLike, counts_NC: npt.ArrayLike, level: float) -> dict[str, float]:
    """The distance of the probabilities from the votes (l1), its limits, and what right probabilities would show.

    Raises:
        ValueError: counts that are none, or of another shape than the probabilities.
    """
    counts = check_counts(counts_NC)
    interval = metrics.samplewise_interval(p_NC, counts, level=level)
    return {
        "samplewise_error": interval.error,
        "samplewise_error_lower": interval.lower,
        "samplewise_error_upper": interval.upper,
        "samplewise_floor": metrics.samplewise_noise_floor(p_NC, counts.sum(axis=1)),
    }


def panel_values(counts_NC: npt.ArrayLike) -> dict[str, float]:
    """The votes, and how far apart panels of people are by their scatter alone, whatever a model says.

    Raises:
        ValueError: counts that are none.
    """
    counts = check_counts(counts_NC)
    votes_N = counts.sum(axis=1)
    halves = {} if votes_N.max() < 2 else {"half_panels_error": metrics.half_panels_error(counts)}
    return {
        "mean_votes": float(votes_N.mean()),
        "unanimous_share": float(np.mean(counts.max(axis=1) == votes_N)),
        "second_panel_error": metrics.second_panel_error(counts),
        **halves,
    }
