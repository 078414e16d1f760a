"""Temperature scaling on the validation NLL (Guo et al. 2017, section 4.2), solved exactly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt

from pipeline.calibrators.base import Calibrator
from pipeline.metrics.inputs import Array, softmax

LOWEST, HIGHEST = 0.05, 20.0


@dataclass(frozen=True)
class Temperature(Calibrator):
    """p = softmax(z / T), T in [.05, 20].

    The NLL mean_n [logsumexp(beta z_n) - beta z_n,y] is convex in beta = 1/T, with the derivative
    mean_n [E_p z_n - z_n,y]; its root is found by Newton steps kept inside a bracket, to a relative 1e-12.

    Without a wrong validation row the NLL has no minimum (it falls for ever as T -> 0); without information
    in the logits, none either (T -> infinity). The bound that was hit is then recorded in `bound`.
    """

    name: ClassVar[str] = "temperature"
    keeps_argmax: ClassVar[bool] = True

    temperature: float
    bound: Literal["lower", "upper"] | None = None

    def __post_init__(self) -> None:
        if not LOWEST <= self.temperature <= HIGHEST:
            raise ValueError(f"temperature is {self.temperature}; allowed is [{LOWEST}, {HIGHEST}]")

    @classmethod
    def fit(cls, logits_NC: Array, labels_N: npt.NDArray[np.intp]) -> Self:
        shifted_NC = logits_NC - logits_NC.max(axis=1, keepdims=True)
        true_N = shifted_NC[np.arange(len(labels_N)), labels_N]
        squares_NC = shifted_NC**2

        def slope_and_curvature(beta: float) -> tuple[float, float]:
            probabilities_NC = softmax(beta * shifted_NC)
            mean_N = np.einsum("nc,nc->n", probabilities_NC, shifted_NC)
            square_N = np.einsum("nc,nc->n", probabilities_NC, squares_NC)
            return float((mean_N - true_N).mean()), float((square_N - mean_N**2).mean())

        low, high = 1 / HIGHEST, 1 / LOWEST
        if slope_and_curvature(low)[0] >= 0:
            return cls(HIGHEST, "upper")
        if slope_and_curvature(high)[0] <= 0:
            return cls(LOWEST, "lower")
        beta = 1.0
        while high - low > 1e-12 * high:
            slope, curvature = slope_and_curvature(beta)
            low, high = (low, beta) if slope > 0 else (beta, high)
            newton = beta - slope / curvature if curvature > 0 else low
            step = newton if low < newton < high else (low + high) / 2
            if abs(step - beta) <= 1e-13 * beta:
                break
            beta = step
        return cls(float(np.clip(1 / beta, LOWEST, HIGHEST)))

    def _apply(self, logits_NC: Array) -> Array:
        return softmax(logits_NC / self.temperature)

    def notes(self) -> list[str]:
        if self.bound == "lower":
            return [
                f"The temperature stopped at its lower bound {LOWEST}: on the validation rows the NLL falls for ever as"
                " T does (no row is wrong, or none by much). Use more, or harder, validation rows."
            ]
        if self.bound == "upper":
            return [
                f"The temperature stopped at its upper bound {HIGHEST}: on the validation rows the logits say less than"
                " nothing about the labels. Check that logits and labels belong together."
            ]
        return []
