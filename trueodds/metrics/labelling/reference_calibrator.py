"""Bias-corrected temperature scaling of served probabilities, and the EM of class shares on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import scipy

from trueodds.sums.inputs import Array

SMALLEST = 1e-9
"""Probabilities below this count as this in logarithms."""
PENALTY = 1e-3
"""Weight of the squared distance from (slope 1, bias 0). It keeps the fit finite if the rows are separable."""
LARGEST_SLOPE = 20.0
EM_STEPS = 2_000
EM_PRECISION = 1e-9


@dataclass(frozen=True)
class ReferenceCalibrator:
    """Temperature with a bias of each class (BCTS): softmax(slope * log p + bias), p being served probabilities.

    It is that of the calibrator `bcts`, but of probabilities in place of logits, and of counts by score.

    The served probabilities may already be calibrated; then the slope is near 1 and the bias near 0. With its biases,
    the mean probability of each class is its share among the rows of the fit. The EM needs this.

    References:
        Alexandari, Kundaje, Shrikumar (2020), section 3.
    """

    slope: float
    """1 / temperature."""
    bias: tuple[float, ...]

    @classmethod
    def fit(cls, p_SC: Array, rows_SC: Array) -> Self:
        """Fit slope and biases by maximum likelihood.

        Args:
            p_SC: Probabilities of each score.
            rows_SC: Number of rows with each score and class.
        """
        used_S = rows_SC.sum(axis=1) > 0
        log_SC, counts_SC = np.log(np.maximum(p_SC[used_S], SMALLEST)), rows_SC[used_S]
        total_S = counts_SC.sum(axis=1, keepdims=True)
        start = np.concatenate([[1.0], np.zeros(p_SC.shape[1])])

        def loss(x: Array) -> tuple[float, Array]:
            log_q_SC = scipy.special.log_softmax(x[0] * log_SC + x[1:], axis=1)
            off_SC = total_S * np.exp(log_q_SC) - counts_SC
            slope = np.concatenate([[(off_SC * log_SC).sum()], off_SC.sum(axis=0)])
            value = -float((counts_SC * log_q_SC).sum()) + PENALTY / 2 * float(((x - start) ** 2).sum())
            return value / total_S.sum(), (slope + PENALTY * (x - start)) / total_S.sum()

        bounds = [(0.0, LARGEST_SLOPE), *[(None, None)] * p_SC.shape[1]]
        options = {"ftol": 1e-13, "gtol": 1e-9, "maxiter": 1000}
        x = scipy.optimize.minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x
        return cls(float(x[0]), tuple((x[1:] - x[1:].mean()).tolist()))

    def __call__(self, probabilities: npt.ArrayLike) -> Array:
        """Return calibrated probabilities (N, C) of served ones."""
        log_NC = np.log(np.maximum(np.asarray(probabilities, np.float64), SMALLEST))
        p_NC: Array = scipy.special.softmax(self.slope * log_NC + np.array(self.bias), axis=1)
        return p_NC


def mixture_shares(ratio_SC: Array, answers_S: Array, start_C: Array) -> Array:
    """Return the shares w that maximise sum_s answers_s log sum_y w_y ratio_sy, by EM.

    Two steps w_y <- mean of w_y ratio_sy / sum_k w_k ratio_sk are extrapolated (SQUAREM). An extrapolation that lowers
    the likelihood is left out. The likelihood is concave, so its maximum does not depend on the start.

    References:
        Saerens, Latinne, Decaestecker (2002), equation 2.9. Varadhan, Roland (2008), SQUAREM, scheme S3.
    """
    used_S = answers_S > 0
    ratio_SC, weight_S = ratio_SC[used_S], answers_S[used_S] / answers_S.sum()

    def step(w_C: Array) -> tuple[Array, float]:
        joint_SC = ratio_SC * w_C
        total_S = np.maximum(joint_SC.sum(axis=1), np.finfo(float).tiny)
        next_C: Array = (weight_S / total_S) @ joint_SC
        return next_C / next_C.sum(), float(weight_S @ np.log(total_S))

    w_C = start_C
    for _ in range(EM_STEPS):
        first_C, _ = step(w_C)
        second_C, _ = step(first_C)
        r_C, v_C = first_C - w_C, second_C - 2 * first_C + w_C
        if np.abs(r_C).max() < EM_PRECISION:
            return first_C
        length = -max(1.0, float(np.linalg.norm(r_C)) / max(float(np.linalg.norm(v_C)), 1e-300))
        far_C = np.maximum(w_C - 2 * length * r_C + length**2 * v_C, 1e-15)
        far_C /= far_C.sum()
        w_C = far_C if step(far_C)[1] >= step(second_C)[1] else second_C
    return w_C
