"""Kernel-smoothed calibration errors of the top label, from the cells.

The reflected kernel's eigenfunctions on [0, 1] are cos(pi k t), with its Fourier transform at pi k as factors: between
two cosine transforms of 3,000 cells a kernel is a product. Half-sample symmetry reflects at 0 and 1 exactly, so the
end cells count in full. Probabilities and `CalibrationSums` give the same number.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.fft import dct, idct
from scipy.optimize import brentq
from scipy.special import spherical_jn

from trueodds.metrics.ranked import ranked
from trueodds.metrics.scores import Predictions, as_sums
from trueodds.sums.bins import CELLS
from trueodds.sums.inputs import Array, is_number

FREQUENCY = np.arange(CELLS, dtype=np.float64) * float(np.pi)
CENTRE = (np.arange(CELLS, dtype=np.float64) + 0.5) / CELLS
NARROWEST = 10 / CELLS
PAIRS = 1 << 17  # kernel values held at a time


def smooth_ece(predictions: Predictions, labels_N: npt.ArrayLike | None = None) -> float:
    """Smooth calibration error smECE (Blasiok and Nakkiran 2024): the sigma at which smECE_sigma equals sigma.

        smECE_sigma = int_0^1 |1/n sum_i (a_i - c_i) K_sigma(t, c_i)| dt

    with the Gaussian kernel reflected at 0 and 1. It falls with sigma, so there is one such point. Against the raw
    confidences: within mean|a - c| h / (sigma sqrt(2 pi)) at equal sigma, h = 1/3000 (measured: 4e-5 at the fixed
    point, 500 to 50,000 rows). The authors' package takes 10 halvings, stops at .001, and loses mass at 0 and 1.

    Raises:
        ValueError: bad input or no rows.

    >>> probabilities, labels = [[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7]], [0, 0, 1, 1]
    >>> round(metrics.smooth_ece(probabilities, labels), 4)
    0.1321
    """
    sums = as_sums(predictions, labels_N)
    wave = dct((sums.cells[2] - sums.cells[1]) / sums.n)

    def above(sigma: float) -> float:
        return float(np.abs(idct(wave * np.exp(-0.5 * (FREQUENCY * sigma) ** 2))).sum()) - sigma

    # smECE_1 <= 1, but for rounding: the bracket reaches a little further.
    return min(float(brentq(above, 0.0, 1.001, xtol=1e-12)), 1.0) if above(0.0) > 0 else 0.0


def kde_ece(
    predictions: Predictions, labels_N: npt.ArrayLike | None = None, *, bandwidth: float | None = None
) -> float:
    """Kernel-density calibration error (Zhang et al. 2020): int_0^1 |z - pi(z)| p(z) dz, the gamma-net paper's eq. 9.

        p(z) = 1/n sum_i K(z - c_i),  p(z) pi(z) = 1/n sum_i a_i K(z - c_i)

    with the triweight kernel, reflected at 0 and 1. `bandwidth` is the kernel's standard deviation (a third of its
    half width); None: std(c) (2n)^(-1/5), the authors' rule (their code takes the right rows' std, which nothing
    defines where none is right, and reflects half of the rows at each end). Within h (1/2 + 35 / (48 bandwidth)) of
    the raw confidences' value, h = 1/3000.

    Raises:
        ValueError: bad input, no rows, or a bandwidth outside (0, 1].

    >>> probabilities, labels = [[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7]], [0, 0, 1, 1]
    >>> round(metrics.kde_ece(probabilities, labels), 4)
    0.1632
    """
    sums = as_sums(predictions, labels_N)
    count, confidence, correct = sums.cells[:3]
    if bandwidth is None:
        mean = np.divide(confidence, count, out=np.zeros(CELLS), where=count > 0)
        spread = np.sqrt(count @ (mean - confidence.sum() / sums.n) ** 2 / sums.n)
        bandwidth = float(spread * (2 * sums.n) ** -0.2)
    elif not (is_number(bandwidth) and 0 < bandwidth <= 1):
        raise ValueError(f"bandwidth is {bandwidth!r}; allowed is (0, 1], such as 0.05, or None for the rule of thumb")
    factor = _triweight(3 * bandwidth * FREQUENCY)
    density, right = idct(dct(np.stack([count, correct])) * factor) / sums.n
    return float(np.abs(right - CENTRE * density).sum())


def sece(predictions: Predictions, labels_N: npt.ArrayLike | None = None, *, bandwidth: float = 0.01) -> float:
    """Smooth ECE of the gamma-net paper (eqs. 6 to 8): each confidence against the soft accuracy around it.

        SECE = 1/n sum_i |sum_j a_j K(c_i, c_j) / sum_j K(c_i, c_j) - c_i|,  K = exp(-(c_i - c_j)^2 / (2 h^2))

    normalised as in eq. 13; the sums run over all rows, j = i included, and h = .01 is the paper's. Rows of one cell
    stand at their mean confidence. Against the raw confidences at h = .01: within 4e-5 from 500 rows on (measured), but
    up to 1.8e-3 was found at three to ten rows, where two of a cell lie on the flank of another's kernel.

    Raises:
        ValueError: bad input, no rows, or a bandwidth below 1/300, ten cells.

    >>> probabilities, labels = [[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7]], [0, 0, 1, 1]
    >>> round(metrics.sece(probabilities, labels), 4)
    0.3
    """
    if not (is_number(bandwidth) and bandwidth >= NARROWEST):
        raise ValueError(f"bandwidth is {bandwidth!r}; allowed is 1/300 (ten cells) and above, such as 0.01")
    rows = ranked(as_sums(predictions, labels_N))
    c_G, total = rows.confidence_G, 0.0
    for start in range(0, len(c_G), max(PAIRS // len(c_G), 1)):
        group = slice(start, start + max(PAIRS // len(c_G), 1))
        kernel_GG = np.exp(-0.5 * ((c_G[group, None] - c_G) / bandwidth) ** 2)
        accuracy_G = kernel_GG @ rows.correct_G / (kernel_GG @ rows.count_G)
        total += float(rows.count_G[group] @ np.abs(accuracy_G - c_G[group]))
    return total / rows.n


def _triweight(w: Array) -> Array:
    """Fourier transform of 35/32 (1 - u^2)^3 on [-1, 1]: 105 j_3(w) / w^3, j_3 the spherical Bessel function."""
    small = w < 1e-2  # where the quotient cancels; the series is exact to 1e-10 there
    wave: Array = np.where(small, 1 - w * w / 18, 105 * spherical_jn(3, w) / np.where(small, 1.0, w) ** 3)
    return wave
