"""The exponent gamma of the focal family: fixed, scheduled over the run, or chosen for each row by its p_y.

Imports of torch, numpy and scipy stand inside functions, because the table of methods needs only the names of RULES.
All rules are from Mukhoti et al. 2020. gamma is a constant for the gradient, as in the authors' code.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias, overload

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import torch
    from torch import Tensor

    from pipeline.methods.method import Moment

Array: TypeAlias = "npt.NDArray[np.float64]"
Rule: TypeAlias = "Callable[[Tensor, int], Tensor | float]"
"""Function (p, stage) -> gamma for each p, or one for all. The stage, 0 to 2, counts the schedule's changes so far."""

CHANGES = (2 / 7, 5 / 7)
"""Fractions of the run at which a schedule changes gamma: epochs 100 and 250 of 350."""

CAP = 20.0  # gamma* exceeds it for p < .078; at p = .05 it is 38, and (1 - p)^38 is too small to learn from
BRANCH = math.nextafter(math.exp(-1.0), 0)
SMALLEST = 1e-307  # at about half of it gamma* exceeds the largest float64
CELLS = 4096  # linear interpolation of gamma* between .07 and .5 then has an error of at most 4e-4 (measured)


@overload
def gamma_star(p: Tensor) -> Tensor: ...
@overload
def gamma_star(p: float | Array) -> Array: ...
def gamma_star(p: float | Array | Tensor) -> Array | Tensor:
    """Return the gamma at which focal loss has the same gradient at p as cross entropy.

    gamma* = a/b + W_-1(-a^(1 - a/b) / b * log a) / log a with a = 1 - p and b = p log p; gamma* = 0 for p >= 1/2.
    It solves g(p, gamma*) = 1 for g(p, gamma) = (1 - p)^gamma - gamma p (1 - p)^(gamma - 1) log p.
    It is not clipped: it grows without bound as p falls, and is infinite at 0.

    Args:
        p: Probabilities of the true class, in [0, 1].

    Returns:
        gamma*, in the shape of `p`. A tensor gives a tensor of its dtype.

    Raises:
        ValueError: A p is outside [0, 1] or NaN.

    References:
        Mukhoti et al. (2020), Calibrating deep neural networks using focal loss, proposition 2.

    Examples:
        >>> gamma_star(np.array([0.1, 0.2, 0.5])).round(2)
        array([14.92,  4.85,  0.  ])
    """
    import numpy as np
    import torch
    from scipy.special import lambertw

    if isinstance(p, torch.Tensor):
        return torch.from_numpy(np.asarray(gamma_star(p.detach().double().cpu().numpy()))).to(p)
    p = np.asarray(p, dtype=np.float64)
    if not ((p >= 0) & (p <= 1)).all():
        raise ValueError(f"gamma_star: p has values from {p.min()} to {p.max()}; allowed are probabilities in [0, 1]")
    # At p = 1/2 the argument of W is -1/e. scipy gives NaN for any value below, even for -exp(-1) as rounded.
    inside = np.where((p > SMALLEST) & (p < 0.5), p, 0.25)
    log_a, b = np.log1p(-inside), inside * np.log(inside)
    ratio = np.exp(log_a) / b
    argument = np.maximum(-np.exp((1 - ratio) * log_a) / b * log_a, -BRANCH)
    exponent = ratio + lambertw(argument, k=-1).real / log_a
    # Rounding makes it negative in the last 1e-8 before 1/2.
    return np.where(p >= 0.5, 0.0, np.where(p > SMALLEST, np.maximum(exponent, 0.0), np.inf))


def gradient_ratio(p: npt.ArrayLike, gamma: float) -> Array:
    """Return the gradient of focal loss divided by that of cross entropy.

    g(p, gamma) = (1 - p)^gamma - gamma p (1 - p)^(gamma - 1) log p, so that dFL/dw = g(p_y, gamma) dCE/dw.
    g rises from 1 at p = 0, is 1 again at `p_zero`, and falls to 0 at p = 1.

    Args:
        p: Probabilities of the true class, in [0, 1].
        gamma: The exponent, at least 0.

    Returns:
        The ratio, in the shape of `p`.

    Raises:
        ValueError: A p is outside [0, 1] or NaN, or gamma is below 0.

    References:
        Mukhoti et al. (2020), Calibrating deep neural networks using focal loss, proposition 1.

    Examples:
        >>> gradient_ratio([0.0, 0.5, 1.0], 1.0).round(3)
        array([1.   , 0.847, 0.   ])
    """
    import numpy as np
    from scipy.special import xlogy

    values = np.asarray(p, dtype=np.float64)
    if not ((values >= 0) & (values <= 1)).all():
        raise ValueError(f"gradient_ratio: p has values from {values.min()} to {values.max()}; allowed is [0, 1]")
    if not gamma >= 0:
        raise ValueError(f"gradient_ratio: gamma is {gamma}; allowed are numbers of at least 0")
    rest = 1 - values
    share = np.divide(-xlogy(values, values), rest, out=np.ones_like(rest), where=rest > 0)
    ratio: Array = rest**gamma * (1 + gamma * share)
    return ratio


def p_zero(gamma: float) -> float:
    """Return p0 in (0, 1/2) with g(p0, gamma) = 1 (see `gradient_ratio`).

    Below p0 the gradient of focal loss is larger than that of cross entropy, above p0 it is smaller.
    `p_zero` is the inverse of `gamma_star`. p0 is 1/e for gamma = 1.

    Args:
        gamma: The exponent.

    Raises:
        ValueError: gamma is outside [1e-3, 1e6]. As gamma goes to 0, p0 goes to 1/2 and g goes to 1 everywhere.

    References:
        Mukhoti et al. (2020), Calibrating deep neural networks using focal loss, section 4.

    Examples:
        >>> round(p_zero(1.0), 4)
        0.3679
    """
    import numpy as np
    from scipy.optimize import brentq

    if not 1e-3 <= gamma <= 1e6:
        raise ValueError(f"p_zero: gamma is {gamma}; allowed is 0.001 to 1,000,000")

    def log_ratio(p: float) -> float:
        return float(gamma * np.log1p(-p) + np.log1p(-gamma * p * np.log(p) / (1 - p)))

    return float(brentq(log_ratio, 1e-12, 0.5, xtol=1e-15))


def schedule_rule(values: Sequence[float]) -> Rule:
    """Return the rule with values[0] until the first change, values[1] until the second, and then values[2]."""

    def rule(p: Tensor, stage: int) -> float:
        return values[stage]

    return rule


def step_rule(values: Sequence[float], edges: Sequence[float], *, edges_below: bool) -> Rule:
    """Return the rule with values[i] for p between edges[i - 1] and edges[i].

    If `edges_below`, an edge itself belongs to the lower step.
    """
    steps = [after - before for before, after in pairwise(values)]

    def rule(p: Tensor, stage: int) -> Tensor:
        import torch

        # Python numbers, because a tensor made here would be copied to the device at every step
        passed = [p > edge if edges_below else p >= edge for edge in edges]
        jumps = (step * is_past for step, is_past in zip(steps, passed, strict=True))
        return sum(jumps, start=torch.full_like(p, values[0]))

    return rule


def continuous(p: Tensor, stage: int) -> Tensor:
    """Return min(gamma*(p), 20), interpolated from a table, so that a step needs no scipy and no copy to the host."""
    import torch

    table = _table(p.device, p.dtype)
    place = p.clamp(0, 0.5) * (2 * CELLS)
    cell = place.long().clamp_max(CELLS - 1)
    return torch.lerp(table[cell], table[cell + 1], place - cell)


@functools.cache
def _table(device: torch.device, dtype: torch.dtype) -> Tensor:
    """Return gamma*, at most CAP, at CELLS + 1 points of [0, 1/2]."""
    import numpy as np
    import torch

    values = np.minimum(gamma_star(np.linspace(0, 0.5, CELLS + 1)), CAP)
    return torch.from_numpy(values).to(device, dtype)


RULES: dict[str, Rule] = {
    "fls531": schedule_rule((5.0, 3.0, 1.0)),
    "fls532": schedule_rule((5.0, 3.0, 2.0)),
    "fla53": step_rule((5.0, 3.0), (0.19,), edges_below=True),
    "fla532": step_rule((5.0, 3.0, 2.0), (0.19, 0.5), edges_below=True),
    "flsd53": step_rule((5.0, 3.0), (0.2,), edges_below=False),
    "flsd52": step_rule((5.0, 3.0, 2.0), (0.2, 0.5), edges_below=False),
    "lambert": continuous,
}
"""Rules that the option `gamma` may name instead of being a number."""
SCHEDULES = ("fls531", "fls532")
"""Rules that change during the run."""


def exponent(
    p: Tensor,
    moment: Moment,
    *,
    gamma: float | str = 1.0,
    first_change: float = CHANGES[0],
    second_change: float = CHANGES[1],
    **others: object,
) -> Tensor:
    """Return the gamma of each row (N,) at its p_y, for a focal loss with these options."""
    import torch

    values = torch.as_tensor(resolve(gamma, p, moment, (first_change, second_change)), dtype=p.dtype, device=p.device)
    return values.expand(p.shape)


def resolve(gamma: float | str, p: Tensor, moment: Moment, changes: tuple[float, float] = CHANGES) -> Tensor | float:
    """Return gamma for each p, (N,) or (N, C), or one number for all.

    The moment's gamma comes first. Otherwise a number is returned unchanged, and a name selects one of RULES.

    Args:
        gamma: A number or the name of a rule.
        p: Probabilities of the target classes.
        moment: Progress of the run, and gamma per row if a part of the method sets it.
        changes: Fractions of the run at which a schedule changes.
    """
    if moment.gamma is not None:
        return moment.gamma if p.ndim == 1 else moment.gamma.unsqueeze(1)
    if not isinstance(gamma, str):
        return gamma
    return RULES[gamma](p.detach(), sum(moment.progress >= change for change in changes))
