"""Power of a t-test: the difference that it would have found."""

from __future__ import annotations

import numpy as np
import scipy

POWER = 0.8
DRAWS = 2000


def detectable(error: float, freedom: float, level: float = 0.05, power: float = POWER) -> float:
    """Compute the smallest true difference that a two-sided t-test finds with probability `power`.

    It is the delta with P(T > t_{f, 1 - level/2}) = power, where T is noncentral t with f degrees of freedom and
    noncentrality delta / error. The power is the mean of Phi(delta / error - t s) over quantiles of s,
    where s^2 ~ chi^2_f / f.

    Args:
        error: Standard error of the estimated difference.
        freedom: Degrees of freedom of the standard error, above 0.
        level: Significance level of the test.
        power: Probability of finding the difference.

    References:
        Cohen 1988, Statistical Power Analysis, section 2.

    Examples:
        >>> round(detectable(1.0, 1000), 2), round(detectable(1.0, 1), 1)
        (2.8, 16.3)
    """
    critical = float(scipy.special.stdtrit(freedom, 1 - level / 2))
    spread = np.sqrt(scipy.special.chdtri(freedom, (np.arange(DRAWS) + 0.5) / DRAWS) / freedom)
    highest = critical * float(spread.max()) + 10
    return float(
        error
        * scipy.optimize.brentq(lambda delta: scipy.special.ndtr(delta - critical * spread).mean() - power, 0, highest)
    )
