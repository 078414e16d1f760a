"""Steps of rounded probabilities: which step rows show, and which sums it explains."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

MOST_ROUNDING = 0.1
"""Largest distance from 1 of the sum of rounded probabilities, if nobody said that they are rounded."""
MOST_WITH_MANY = 0.25
"""The same for 100 classes or more.

Of 10,000 rows of a net with 100 classes, in steps of .01, 6% differ by more than 0.1, and none by more than 0.2.
"""
COARSEST_WITH_NLL = 0.02
"""Coarsest step at which an NLL is given. On three records of CIFAR it is within 0.05 of the exact one up to here."""
STEPS = tuple(float(f"{digit}e-{decimals}") for decimals in range(1, 9) for digit in ("1", "5"))[:-1]
"""Steps that rows can show, in the order in which they are tried: .1, .5 of it, .01, ..."""
_EVIDENCE_ROWS = 10
"""Number of rows from which a step above `COARSEST_WITH_NLL` can be inferred."""


def most_rounding(classes: int) -> float:
    """Return the largest distance of a row's sum from 1 that passes as rounding, if nobody said that rows are rounded.

    It is 0.1 up to 40 classes, and 0.0025 for each class above that, up to 0.25.

    Args:
        classes: Number of values of a row.

    Examples:
        >>> from trueodds.sums.steps import most_rounding
        >>> most_rounding(3), most_rounding(60), most_rounding(1000)
        (0.1, 0.15, 0.25)
    """
    return min(max(MOST_ROUNDING, MOST_WITH_MANY * classes / 100), MOST_WITH_MANY)


def explained_by_rounding(
    p_NC: npt.NDArray[np.floating], excess_N: npt.NDArray[np.float64], step: float
) -> npt.NDArray[np.bool_]:
    """Return which rows of rounded probabilities can come from rows that sum to 1. `excess_N` is their sum minus 1.

    A value above 0 is at most half a step too high, and each value is at most that much too low.
    """
    slack = max(1e-7, float(np.finfo(p_NC.dtype).eps))
    most_N, least_N = step / 2 * (p_NC > 0).sum(axis=1), -step / 2 * p_NC.shape[1]
    explained_N: npt.NDArray[np.bool_] = (excess_N <= most_N + slack) & (excess_N >= least_N - slack)
    return explained_N


def inferred_step(probabilities_NC: npt.NDArray[np.floating]) -> float | None:
    """Return the step of rounded rows, inferred from sums that differ from 1; None if they show none.

    All values are multiples of the step, some row's sum differs from 1, and rounding explains every sum. Multiples of a
    step whose rows all sum to 1 show nothing: forests, nearest neighbours and votes give them, and their zeros are
    zeros. At most a quarter of the rows may differ by more than 0.1, so that a missing class is not taken for rounding.
    A step above 0.02 needs ten rows, of which at least a third sum to 1.

    Args:
        probabilities_NC: Finite probabilities, shape (N, C).

    Examples:
        >>> import numpy as np
        >>> from trueodds.sums.steps import inferred_step
        >>> inferred_step(np.array([[0.33, 0.33, 0.33]]))
        0.01
        >>> print(inferred_step(np.array([[0.3, 0.7], [1.0, 0.0]])))
        None
    """
    if (steps := _common_steps(probabilities_NC)) is None:
        return None
    excess_N = probabilities_NC.sum(axis=1, dtype=np.float64) - 1
    for step in steps:
        off_N = np.abs(excess_N) > step / 2
        if not off_N.any() or not explained_by_rounding(probabilities_NC, excess_N, step).all():
            continue
        if (np.abs(excess_N) > MOST_ROUNDING + step / 2).mean() > 1 / 4:
            continue
        if step > COARSEST_WITH_NLL and (len(excess_N) < _EVIDENCE_ROWS or off_N.mean() > 2 / 3):
            continue
        return step
    return None


def possible_step(probabilities_NC: npt.NDArray[np.floating]) -> float | None:
    """Return the coarsest decimal step of which all values are multiples, whatever the sums; None if there is none.

    Rows that hold only 0 and 1 have none.
    """
    steps = _common_steps(probabilities_NC)
    if steps is None or not ((probabilities_NC > 0) & (probabilities_NC < 1)).any():
        return None
    return next((step for step in steps if f"{step:e}".startswith("1")), steps[0])


def _common_steps(probabilities_NC: npt.NDArray[np.floating]) -> list[float] | None:
    """Return the steps of which all values are multiples, in the order of `STEPS`. None if there is none."""
    steps = list(STEPS)
    rows = len(probabilities_NC)
    for first, last in ((0, 1), (1, 256), (256, rows)):  # a table that is not rounded fails at its first row
        part_NC = probabilities_NC[first:last]
        if len(part_NC):
            steps = [step for step in steps if on_steps(part_NC, step).all()]
        if not steps:
            return None
    return steps


def on_steps(probabilities_NC: npt.NDArray[np.floating], step: float) -> npt.NDArray[np.bool_]:
    """Return which values are multiples of a step, as far as their dtype can hold them."""
    wide_NC = probabilities_NC.astype(np.float64, copy=False)
    near = min(max(1e-7, float(np.finfo(probabilities_NC.dtype).eps)), step / 20)
    with np.errstate(invalid="ignore", over="ignore"):
        on_NC: npt.NDArray[np.bool_] = np.abs(wide_NC - np.rint(wide_NC / step) * step) <= near
    return on_NC
