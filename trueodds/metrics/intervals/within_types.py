"""Standard errors of means over types, without the differences between the types (Loftus and Masson 1994)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from trueodds.sums.inputs import Array


@dataclass(frozen=True)
class WithinTypes:
    """Means over T types at each of S levels, with one standard error for all levels."""

    mean_S: Array
    standard_error: float
    """Standard error of the means. NaN if there are fewer than two types or two levels."""
    degrees: int
    """Degrees of freedom of the standard error, (T - 1)(S - 1)."""

    def half_width(self, level: float) -> float:
        """Return half the width of the confidence interval at this level: t times the standard error."""
        if not self.degrees:
            return math.nan
        return float(scipy.special.stdtrit(self.degrees, (1 + level) / 2)) * self.standard_error


def within_types(values_TS: npt.ArrayLike) -> WithinTypes:
    """Compute the means over types and their standard error sqrt(MS / T).

        MS = sum_ts (y_ts - y_t. - y_.s + y_..)^2 / ((T - 1)(S - 1)), with a dot for a mean over that index

    Each of T types (of subjects, corruptions) is measured at the same S levels (conditions, severities). If one
    corruption is harder than another at every severity, that says nothing about the uncertainty of differences between
    severities. So the types' own means are removed, and MS is the mean square of the interaction. The interval of a
    mean is m_s +- t sqrt(MS / T), with t of (T - 1)(S - 1) degrees of freedom. It is designed for differences between
    levels, whose interval is sqrt(2) times as wide. It is the same at all levels, as if the interaction had the same
    size everywhere. It ignores the rows on which each value was measured.

    Args:
        values_TS: One value for each type and level, shape (T, S).

    Returns:
        The means and their standard error.

    Raises:
        ValueError: The input is not a table of finite numbers.

    References:
        Loftus and Masson 1994, Psychonomic Bulletin & Review 1, 476, eq. 2. Masson and Loftus 2003, Canadian Journal of
        Experimental Psychology 57, 203.

    Examples:
        >>> result = within_types([[1.0, 2.0], [4.0, 7.0]])
        >>> result.mean_S.tolist(), round(result.standard_error, 3), result.degrees
        ([2.5, 4.5], 0.707, 1)
    """
    table_TS = np.asarray(values_TS, dtype=np.float64)
    if table_TS.ndim != 2 or 0 in table_TS.shape or not np.isfinite(table_TS).all():
        raise ValueError(f"values_TS must be types x levels, finite and not empty; its shape is {table_TS.shape}")
    types, levels = table_TS.shape
    mean_S, degrees = table_TS.mean(0), (types - 1) * (levels - 1)
    if not degrees:
        return WithinTypes(mean_S, math.nan, 0)
    rest_TS = table_TS - table_TS.mean(1, keepdims=True) - mean_S + table_TS.mean()
    mean_square = float((rest_TS**2).sum()) / degrees
    return WithinTypes(mean_S, math.sqrt(mean_square / types), degrees)
