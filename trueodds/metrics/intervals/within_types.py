"""Standard errors of means over types, without what the types differ by anyway (Loftus & Masson 1994)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from trueodds.sums.inputs import Array


@dataclass(frozen=True)
class WithinTypes:
    """Means over T types at each of S levels, with one standard error for all levels."""

    mean_S: Array
    standard_error: float
    """NaN where there are fewer than two types or two levels."""
    degrees: int
    """(T - 1)(S - 1), of the standard error."""

    def half_width(self, level: float) -> float:
        """Of the confidence interval at this level: t times the standard error."""
        if not self.degrees:
            return math.nan
        return float(stdtrit(self.degrees, (1 + level) / 2)) * self.standard_error


def within_types(values_TS: npt.ArrayLike) -> WithinTypes:
    """sqrt(MS / T), MS = sum_ts (y_ts - y_t. - y_.s + y_..)^2 / ((T - 1)(S - 1)), a dot for a mean over that index.

    Each of T types (of subjects, corruptions) is measured at the same S levels (conditions, severities). That one
    corruption is harder than another at every severity says nothing of how sure the differences between severities
    are, so that part, the types' own means, is taken out: MS is the mean square of the interaction. With it the mean's
    interval is m_s +- t sqrt(MS / T), t of (T - 1)(S - 1) degrees of freedom (Loftus & Masson 1994, Psychonomic
    Bulletin & Review 1, 476, eq. 2; Masson & Loftus 2003, Canadian Journal of Experimental Psychology 57, 203). It is
    made for differences between levels, whose interval is sqrt(2) times as wide; it is the same at all levels, as if
    the interaction were everywhere of one size; and it knows nothing of the rows that each value was measured on.

    Raises:
        ValueError: not a table of finite numbers.

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
