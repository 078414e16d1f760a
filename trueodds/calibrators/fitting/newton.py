"""Convex problems within bounds, solved by Newton's method with conjugate gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import numpy.typing as npt

from trueodds.calibrators.base import FitError
from trueodds.sums.inputs import Array

TOLERANCE = 1e-9
"""Largest component of the projected gradient of a mean loss at the solution."""
CLOSE = 0.25
"""Share of `TOLERANCE` at which the gradient of a step's quadratic model is small enough."""
ITERATIONS = 200
PRODUCTS = 250
"""Largest number of products with the Hessian for one step."""
NEAR = 1e-6, 1e-5
"""Largest component of the projected gradient, and largest fall in nats that is left, if the search gets no further."""
TRUSTED = 0.75
"""Share of the fall that a step's quadratic model predicts from which the model's Hessian is close enough to end on.

If it is 1/k of the true one, the step is k times too long. It then lowers the loss by the share 2 - k of the predicted
fall, and leaves (k - 1)^2 / k of that.
"""

Free = npt.NDArray[np.bool_]
Inverse = Callable[[Array], Array]
"""An approximation of d -> H^-1 d."""


class ConvexProblem(Protocol):
    """A convex function of P parameters."""

    def value_and_gradient(self, theta_P: Array) -> tuple[float, Array]:
        """Compute the loss and its gradient. Later calls of the other two methods refer to this point."""

    def hessian_times(self, direction_P: Array) -> Array:
        """Compute H d."""

    def hessian_diagonal(self) -> Array:
        """Return diag(H), or something of its size; it is only a preconditioner."""


def minimise(
    problem: ConvexProblem,
    start_P: Array,
    low: Array | float,
    high: Array | float,
    what: str,
    fall: float = 0.0,
    inverse: Callable[[], Inverse | None] = lambda: None,
    doubt: Callable[[], None] | None = None,
) -> Array:
    """Find the minimum within low <= theta <= high.

    Parameters that press against a bound stay there. For the others, preconditioned conjugate gradients give the Newton
    step, which is shortened until the loss falls. The search stops if no component of theta - clip(theta - gradient)
    exceeds 1e-9. If the loss can fall no further in float64, or after 200 steps, 1e-6 is enough, provided that little
    is left to gain (see `_is_near`). The search also stops after a whole Newton step that lowers the loss by less than
    `fall`. If the step's quadratic model predicted a much larger fall (`TRUSTED`), the search calls `doubt` instead,
    which improves the Hessian, and goes on.

    `inverse` returns a preconditioner at the problem's last point, for parameters without bounds. If it returns None,
    the preconditioner is the diagonal of the Hessian.

    Raises:
        FitError: The minimum is not reached after 200 steps, or no step helps, so the rows do not determine the
            parameters; or numbers leave the range of float64.
    """
    theta_P = np.clip(start_P, low, high)
    value, gradient_P = problem.value_and_gradient(theta_P)
    off_P, predicted = np.full_like(theta_P, np.inf), np.inf
    for _ in range(ITERATIONS):
        off_P = np.abs(theta_P - np.clip(theta_P - gradient_P, low, high))
        if off_P.max(initial=0.0) <= TOLERANCE:
            return theta_P
        step_P = _step(problem, theta_P, gradient_P, low, high, inverse())
        size = 1.0
        while True:
            tried_P = np.clip(theta_P + size * step_P, low, high)
            slope = float(gradient_P @ (tried_P - theta_P))
            if size == 1.0:
                predicted = -slope / 2
            tried, tried_gradient_P = problem.value_and_gradient(tried_P)
            if tried <= value + 1e-4 * min(slope, 0.0) + 4e-16 * abs(value):
                break
            size /= 4
            if size < 1e-9:
                if _is_near(off_P, theta_P, predicted):
                    return theta_P
                raise _failure(what, off_P)
        # Without `fall` the search goes on: rounding may raise the loss, and the gradient still falls
        is_last = fall > 0 and size == 1.0 and value - tried < fall
        if is_last and doubt is not None and predicted > max((value - tried) / TRUSTED, fall / 10):
            is_last = False
            doubt()
        theta_P, value, gradient_P = tried_P, tried, tried_gradient_P
        if is_last:
            return theta_P
    if _is_near(off_P, theta_P, predicted):
        return theta_P
    raise _failure(what, off_P)


def _is_near(off_P: Array, theta_P: Array, predicted: float) -> bool:
    """Return whether a point from which the search gets no further is the minimum but for rounding.

    The gradient alone does not tell: features of a small scale have a small one everywhere. Little is left if the
    quadratic model predicts little, or if the gradient promises little even for a step as long as the parameters. The
    model errs where no curvature is left within float64, the gradient where parameters cancel each other.
    """
    largest, left = NEAR
    return off_P.max(initial=0.0) <= largest and min(predicted, float(off_P @ np.abs(theta_P))) <= left


def _failure(what: str, off_P: Array) -> FitError:
    off = float(off_P.max(initial=0.0))
    return FitError(
        f"{what} has no minimum within reach on these rows (Newton's method stopped at a gradient of {off:.1g});"
        " use more rows, a stronger regularisation, or the calibrator 'temperature'"
    )


def _step(
    problem: ConvexProblem,
    theta_P: Array,
    gradient_P: Array,
    low: Array | float,
    high: Array | float,
    inverse: Inverse | None,
) -> Array:
    """Compute a Newton step within the bounds.

    Parameters that it would carry across a bound go to the bound, and the rest is solved again. Clipping the step
    instead would leave the others at values that suit the unclipped ones, and the search would become slow.
    """
    inside_P = ~(((theta_P <= low) & (gradient_P > 0)) | ((theta_P >= high) & (gradient_P < 0)))
    held_P, free_P = np.zeros_like(theta_P), inside_P.copy()
    for _ in range(20):
        pull_P = gradient_P + problem.hessian_times(held_P) if held_P.any() else gradient_P
        step_P = _conjugate_gradients(problem, pull_P, free_P, inverse) + held_P
        end_P = theta_P + step_P
        crossed_P = free_P & ((end_P < low) | (end_P > high))
        if not crossed_P.any():
            break
        held_P = np.where(crossed_P, np.clip(end_P, low, high) - theta_P, held_P)
        free_P &= ~crossed_P
    return step_P if step_P @ gradient_P < 0 else _to_first_bound(problem, theta_P, gradient_P, inside_P, low, high)


def _to_first_bound(
    problem: ConvexProblem, theta_P: Array, gradient_P: Array, free_P: Free, low: Array | float, high: Array | float
) -> Array:
    """Shorten the plain Newton step to the first bound.

    The result is short if there are many bounds, but always goes downhill.
    """
    while True:
        step_P = _conjugate_gradients(problem, gradient_P, free_P)
        room_P = np.where(step_P > 0, high - theta_P, theta_P - low) / np.maximum(np.abs(step_P), 1e-300)
        blocked_P = free_P & (room_P <= 1e-12)
        if not blocked_P.any():
            return step_P * min(1.0, float(room_P[free_P].min(initial=1.0)))
        free_P = free_P & ~blocked_P


def _conjugate_gradients(
    problem: ConvexProblem, gradient_P: Array, free_P: Free, inverse: Inverse | None = None
) -> Array:
    """Compute an inexact Newton step -H^-1 g over the free parameters, exact enough for quadratic convergence.

    It ends early where the step's own gradient is far below what ends the search.
    """
    diagonal_P = problem.hessian_diagonal()
    weight_P = np.where(free_P, 1 / np.maximum(diagonal_P, 1e-10 * diagonal_P.max(initial=1e-9)), 0.0)
    weigh = inverse or (lambda residual_P: weight_P * residual_P)
    residual_P = np.where(free_P, -gradient_P, 0.0)
    step_P = np.zeros_like(residual_P)
    direction_P = weighted_P = weigh(residual_P)
    energy = first = float(residual_P @ weighted_P)
    # A handful of parameters is solved outright: one bad direction among three is a third of the problem
    enough = min(0.01, max(first, 1e-12)) if len(step_P) > 8 else 1e-20
    for _ in range(PRODUCTS):
        curved_P = np.where(free_P, problem.hessian_times(direction_P), 0.0)
        curvature = float(direction_P @ curved_P)
        if curvature <= 1e-15 * float(direction_P @ (direction_P / np.where(free_P, weight_P, 1.0))):
            break
        length = energy / curvature
        step_P = step_P + length * direction_P
        residual_P = residual_P - length * curved_P
        weighted_P = weigh(residual_P)
        energy, previous = float(residual_P @ weighted_P), energy
        if not np.isfinite(energy) or previous == 0:
            raise FitError(
                "Newton's method left the range of float64 on these rows; look for logits of an extreme size, use a"
                " stronger regularisation, or the calibrator 'temperature'"
            )
        if energy <= first * enough or float(np.abs(residual_P).max()) <= CLOSE * TOLERANCE:
            break
        direction_P = weighted_P + (energy / previous) * direction_P
    return step_P if step_P.any() else weight_P * -gradient_P  # without any curvature, go downhill
