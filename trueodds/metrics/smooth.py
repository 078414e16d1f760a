"""Kernel-smoothed calibration errors of the top label, computed from the cells.

The eigenfunctions of a kernel reflected on [0, 1] are cos(pi k t). So smoothing multiplies the cosine transform of the
3,000 cells by the kernel's Fourier transform at pi k. The half-sample symmetry reflects exactly at 0 and 1, so the end
cells count in full. Probabilities and `CalibrationSums` give the same value.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import scipy

from trueodds.metrics.ranked import rank_predictions
from trueodds.metrics.scores import Predictions, as_sums
from trueodds.sums.bins import CELLS
from trueodds.sums.inputs import Array, is_number

FREQUENCY = np.arange(CELLS, dtype=np.float64) * float(np.pi)
CENTRE = (np.arange(CELLS, dtype=np.float64) + 0.5) / CELLS
NARROWEST = 10 / CELLS
PAIRS = 1 << 17  # kernel values in memory at a time


def smooth_ece(
    predictions: Predictions, labels_N: npt.ArrayLike | None = None, *, classes: Sequence[object] | None = None
) -> float:
    """Compute the smooth calibration error smECE: the sigma at which smECE_sigma equals sigma.

        smECE_sigma = int_0^1 |1/n sum_i (a_i - c_i) K_sigma(t, c_i)| dt

    K_sigma is the Gaussian kernel, reflected at 0 and 1. smECE_sigma falls with sigma, so there is one such point. At
    equal sigma the cells change the value by at most `mean|a - c| h / (sigma sqrt(2 pi))`, with h = 1/3000 (measured at
    the fixed point: 4e-5, 500 to 50,000 rows). The authors' package halves ten times, stops at .001, and loses mass at
    0 and 1.

    Args:
        predictions: Probabilities, shape (N, C), or (N,) for p(positive) of two classes; or `CalibrationSums`.
        labels_N: True classes, shape (N,): indices, or names with `classes`. Leave it out with `CalibrationSums`.
        classes: Names of the classes in column order, if the labels are names. With (N,): [negative, positive].

    Returns:
        The calibration error, in [0, 1].

    Raises:
        ValueError: The probabilities or labels are invalid, or there are no rows.

    References:
        Blasiok and Nakkiran 2024, Smooth ECE: principled reliability diagrams via kernel smoothing.

    Examples:
        >>> probabilities, labels = [[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7]], [0, 0, 1, 1]
        >>> round(metrics.smooth_ece(probabilities, labels), 4)
        0.1321
    """
    sums = as_sums(predictions, labels_N, classes)
    wave = scipy.fft.dct((sums.cells[2] - sums.cells[1]) / sums.n)

    def above(sigma: float) -> float:
        return float(np.abs(scipy.fft.idct(wave * np.exp(-0.5 * (FREQUENCY * sigma) ** 2))).sum()) - sigma

    # smECE_1 <= 1 except for rounding, so the bracket reaches a little further.
    return min(float(scipy.optimize.brentq(above, 0.0, 1.001, xtol=1e-12)), 1.0) if above(0.0) > 0 else 0.0


def kde_ece(
    predictions: Predictions,
    labels_N: npt.ArrayLike | None = None,
    *,
    bandwidth: float | None = None,
    classes: Sequence[object] | None = None,
) -> float:
    """Compute the kernel-density calibration error `int_0^1 |z - pi(z)| p(z) dz`.

        p(z) = 1/n sum_i K(z - c_i),  p(z) pi(z) = 1/n sum_i a_i K(z - c_i)

    K is the triweight kernel, reflected at 0 and 1. The cells change the value by at most h (1/2 + 35 / (48
    bandwidth)), with h = 1/3000. The authors' code differs: it takes the standard deviation of the right rows only,
    which is undefined if there are none, and it reflects half of the rows at each end.

    Args:
        predictions: Probabilities, shape (N, C), or (N,) for p(positive) of two classes; or `CalibrationSums`.
        labels_N: True classes, shape (N,): indices, or names with `classes`. Leave it out with `CalibrationSums`.
        bandwidth: Standard deviation of the kernel (a third of its half width), in (0, 1]. None: the authors' rule,
            std(c) (2n)^(-1/5).
        classes: Names of the classes in column order, if the labels are names. With (N,): [negative, positive].

    Returns:
        The calibration error, in [0, 1].

    Raises:
        ValueError: The input is invalid, there are no rows, or the bandwidth is outside (0, 1].

    References:
        Zhang et al. 2020, Mix-n-Match calibration. The gamma-net paper, eq. 9.

    Examples:
        >>> probabilities, labels = [[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7]], [0, 0, 1, 1]
        >>> round(metrics.kde_ece(probabilities, labels), 4)
        0.1632
    """
    sums = as_sums(predictions, labels_N, classes)
    count, confidence, correct = sums.cells[:3]
    if bandwidth is None:
        mean = np.divide(confidence, count, out=np.zeros(CELLS), where=count > 0)
        spread = np.sqrt(count @ (mean - confidence.sum() / sums.n) ** 2 / sums.n)
        bandwidth = float(spread * (2 * sums.n) ** -0.2)
    elif not (is_number(bandwidth) and 0 < bandwidth <= 1):
        raise ValueError(f"bandwidth is {bandwidth!r}; allowed is (0, 1], such as 0.05, or None for the rule of thumb")
    factor = _triweight(3 * bandwidth * FREQUENCY)
    density, right = scipy.fft.idct(scipy.fft.dct(np.stack([count, correct])) * factor) / sums.n
    return float(np.abs(right - CENTRE * density).sum())


def sece(
    predictions: Predictions,
    labels_N: npt.ArrayLike | None = None,
    *,
    bandwidth: float = 0.01,
    classes: Sequence[object] | None = None,
) -> float:
    """Compute the smooth ECE of the gamma-net paper: compare each confidence with the soft accuracy around it.

        SECE = 1/n sum_i |sum_j a_j K(c_i, c_j) / sum_j K(c_i, c_j) - c_i|,  K = exp(-(c_i - c_j)^2 / (2 h^2))

    The sums run over all rows, j = i included, and are normalised as in eq. 13. The paper uses h = .01. Rows of one
    cell count at their mean confidence. At h = .01 this changes the value by at most 4e-5 from 500 rows on (measured).
    With three to ten rows up to 1.8e-3 was found, if two rows of a cell lie on the flank of another row's kernel.

    Args:
        predictions: Probabilities, shape (N, C), or (N,) for p(positive) of two classes; or `CalibrationSums`.
        labels_N: True classes, shape (N,): indices, or names with `classes`. Leave it out with `CalibrationSums`.
        bandwidth: The h of the formula, at least 1/300 (ten cells).
        classes: Names of the classes in column order, if the labels are names. With (N,): [negative, positive].

    Returns:
        The calibration error, in [0, 1].

    Raises:
        ValueError: The input is invalid, there are no rows, or the bandwidth is below 1/300.

    References:
        The gamma-net paper, eqs. 6 to 8 and 13.

    Examples:
        >>> probabilities, labels = [[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7]], [0, 0, 1, 1]
        >>> round(metrics.sece(probabilities, labels), 4)
        0.3
    """
    if not (is_number(bandwidth) and bandwidth >= NARROWEST):
        raise ValueError(f"bandwidth is {bandwidth!r}; allowed is 1/300 (ten cells) and above, such as 0.01")
    rows = rank_predictions(as_sums(predictions, labels_N, classes))
    c_G, total = rows.confidence_G, 0.0
    for start in range(0, len(c_G), max(PAIRS // len(c_G), 1)):
        group = slice(start, start + max(PAIRS // len(c_G), 1))
        kernel_GG = np.exp(-0.5 * ((c_G[group, None] - c_G) / bandwidth) ** 2)
        accuracy_G = kernel_GG @ rows.correct_G / (kernel_GG @ rows.count_G)
        total += float(rows.count_G[group] @ np.abs(accuracy_G - c_G[group]))
    return total / rows.n


def _triweight(w: Array) -> Array:
    """Return the Fourier transform of 35/32 (1 - u^2)^3 on [-1, 1].

    It is 105 j_3(w) / w^3, with the spherical Bessel function j_3.
    """
    small = w < 1e-2  # here the quotient loses digits, and the series is exact to 1e-10
    wave: Array = np.where(small, 1 - w * w / 18, 105 * scipy.special.spherical_jn(3, w) / np.where(small, 1.0, w) ** 3)
    return wave
