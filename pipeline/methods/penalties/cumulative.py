"""The Kolmogorov-Smirnov calibration error as a penalty."""

from __future__ import annotations

import functools

import numpy as np
import torch
from scipy.interpolate import CubicSpline
from torch import Tensor

from pipeline.methods.penalties.inputs import check_inputs, one_of, positive, top


def ks(logits_NC: Tensor, labels_N: Tensor, *, bins: int = 6, variant: str = "plain") -> Tensor:
    """Return KS = max_i |1/N sum_(c_j <= c_i) (a_j - c_j)|: the largest cumulative gap in order of confidence.

    c and a are confidence and correctness of the top class. Rows of equal confidence share their accuracy, so the
    batch's order does not matter. The order of confidences is a constant for the gradient.

    Args:
        logits_NC: Logits.
        labels_N: Class indices.
        bins: Number of knots of variant spline.
        variant: plain; or spline, the largest gap of the natural cubic spline that fits the cumulative gap at the
            fractions i / N by least squares.

    Returns:
        A scalar.

    Raises:
        ValueError: Inputs or options are out of range.

    References:
        Gupta et al. (2021), Calibration of neural networks using splines.

    Examples:
        >>> ks(torch.log(torch.tensor([[0.25, 0.75]])), torch.tensor([1]))
        tensor(0.2500)
    """
    one_of("variant", variant, ("plain", "spline"))
    positive(bins=bins)
    c_N, a_N = top(check_inputs(logits_NC, labels_N), labels_N)
    sorted_N, order_N = torch.sort(c_N)
    with torch.no_grad():
        group_N = torch.cat([order_N.new_zeros(1), (sorted_N.diff() > 0).cumsum(0)])
        rows_N, right_N = (
            torch.zeros_like(a_N).index_add(0, group_N, values_N) for values_N in (torch.ones_like(a_N), a_N[order_N])
        )
        accuracy_N = (right_N / rows_N.clamp_min(1))[group_N]
    gap_N = (accuracy_N - sorted_N).cumsum(0) / len(c_N)
    if variant == "spline":
        basis_NK = _spline_basis(len(c_N), bins, gap_N.dtype, gap_N.device)
        gap_N = basis_NK @ (basis_NK.T @ gap_N)
    return gap_N.abs().max()


@functools.lru_cache(maxsize=16)
def _spline_basis(rows: int, knots: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return an orthonormal basis (N, K) of natural cubic splines at i / N, which depends on the batch size only."""
    at_N = np.arange(1, rows + 1) / rows
    if knots < 3:
        values_NK = at_N[:, None] ** np.arange(knots)
    else:
        values_NK = CubicSpline(np.linspace(0, 1, knots), np.eye(knots), bc_type="natural")(at_N)
    with torch.inference_mode(False):  # a tensor cached in inference mode could not be used in training
        return torch.as_tensor(np.linalg.qr(values_NK)[0], dtype=dtype, device=device)
