"""The exponent gamma of the focal family: fixed, scheduled over the run, or chosen for each sample by its p_y.

All in Mukhoti et al. 2020. gamma is a constant for the gradient, as in the authors' code.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, overload

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import brentq
from scipy.special import lambertw, xlogy
from torch import Tensor

if TYPE_CHECKING:
    from pipeline.methods.method import Moment

Array = npt.NDArray[np.float64]
Rule = Callable[[Tensor, int], Tensor | float]
"""(p, stage) -> gamma for each p, or one for all; stage: how many changes of the schedule lie behind, 0 to 2."""

CHANGES = (2 / 7, 5 / 7)
"""Where gamma changes, in fractions of the run: epochs 100 and 250 of 350."""

CAP = 20.0  # gamma* passes it below p = .078; at p = .05 it is 38, and (1 - p)^38 leaves nothing to learn from
BRANCH = np.nextafter(np.exp(-1.0), 0)
SMALLEST = 1e-307  # at about half of it gamma* passes the largest float64
CELLS = 4096  # linear interpolation of gamma* between .07 and .5 is then off by at most 4e-4 (measured)


@overload
def gamma_star(p: Tensor) -> Tensor: ...
@overload
def gamma_star(p: float | Array) -> Array: ...
def gamma_star(p: float | Array | Tensor) -> Array | Tensor:
    """gamma* = a/b + W_-1(-a^(1 - a/b) / b * log a) / log a, with a = 1 - p and b = p log p; 0 for p >= 1/2.

    The exponent at which focal loss has the gradient of cross entropy at p: g(p, gamma*) = 1 where
    g(p, gamma) = (1 - p)^gamma - gamma p (1 - p)^(gamma - 1) log p (Mukhoti et al. 2020, proposition 2). Not clipped:
    it grows without bound as p falls, to infinity at 0. Of the shape of `p`; a tensor gives a tensor of its dtype.

    Raises:
        ValueError: a p outside [0, 1], NaN included.
    """
    if isinstance(p, Tensor):
        return torch.from_numpy(np.asarray(gamma_star(p.detach().double().cpu().numpy()))).to(p)
    p = np.asarray(p, dtype=np.float64)
    if not ((p >= 0) & (p <= 1)).all():
        raise ValueError(f"gamma_star: p has values from {p.min()} to {p.max()}; allowed are probabilities in [0, 1]")
    # At p = 1/2 the argument of W is -1/e, and scipy gives NaN for what is below it, -exp(-1) as rounded included.
    inside = np.where((p > SMALLEST) & (p < 0.5), p, 0.25)
    log_a, b = np.log1p(-inside), inside * np.log(inside)
    ratio = np.exp(log_a) / b
    argument = np.maximum(-np.exp((1 - ratio) * log_a) / b * log_a, -BRANCH)
    exponent = ratio + lambertw(argument, k=-1).real / log_a
    # Rounding leaves it below 0 in the last 1e-8 before 1/2.
    return np.where(p >= 0.5, 0.0, np.where(p > SMALLEST, np.maximum(exponent, 0.0), np.inf))


def gradient_ratio(p: npt.ArrayLike, gamma: float) -> Array:
    """g(p, gamma) = (1 - p)^gamma - gamma p (1 - p)^(gamma - 1) log p: the focal gradient over that of cross entropy.

    dFL/dw = g(p_y, gamma) dCE/dw (Mukhoti et al. 2020, proposition 1): rises from 1 at p = 0, is 1 again at `p_zero`,
    and falls to 0 at p = 1. Of the shape of `p`.

    Raises:
        ValueError: a p outside [0, 1], NaN included, or a gamma below 0.
    """
    values = np.asarray(p, dtype=np.float64)
    if not ((values >= 0) & (values <= 1)).all():
        raise ValueError(f"gradient_ratio: p has values from {values.min()} to {values.max()}; allowed is [0, 1]")
    if not gamma >= 0:
        raise ValueError(f"gradient_ratio: gamma is {gamma}; allowed are numbers from 0 on")
    rest = 1 - values
    share = np.divide(-xlogy(values, values), rest, out=np.ones_like(rest), where=rest > 0)
    ratio: Array = rest**gamma * (1 + gamma * share)
    return ratio


def p_zero(gamma: float) -> float:
    """p0 with g(p0, gamma) = 1, in (0, 1/2): focal loss pushes harder than cross entropy below it, and less above.

    1/e for gamma = 1. The inverse of `gamma_star` (Mukhoti et al. 2020, section 4).

    Raises:
        ValueError: a gamma outside [1e-3, 1e6]; towards 0, p0 goes to 1/2 and g to 1 everywhere.
    """
    if not 1e-3 <= gamma <= 1e6:
        raise ValueError(f"p_zero: gamma is {gamma}; allowed is 0.001 to 1,000,000")

    def log_ratio(p: float) -> float:
        return float(gamma * np.log1p(-p) + np.log1p(-gamma * p * np.log(p) / (1 - p)))

    return float(brentq(log_ratio, 1e-12, 0.5, xtol=1e-15))


def scheduled(values: Sequence[float]) -> Rule:
    """values[0] until the first change, values[1] until the second, then values[2]."""

    def rule(p: Tensor, stage: int) -> float:
        return values[stage]

    return rule


def steps(values: Sequence[float], edges: Sequence[float], *, closed: bool) -> Rule:
    """values[i] for p between edges[i - 1] and edges[i]; an edge belongs to the lower step if `closed`."""

    def rule(p: Tensor, stage: int) -> Tensor:
        # Python numbers: a tensor made here would be a copy to the device at every step
        passed = [p > edge if closed else p >= edge for edge in edges]
        jumps = (step * is_past for step, is_past in zip(np.diff(values).tolist(), passed, strict=True))
        return sum(jumps, start=torch.full_like(p, values[0]))

    return rule


def continuous(p: Tensor, stage: int) -> Tensor:
    """min(gamma*(p), 20), from a table by linear interpolation: no scipy and no copy to the host in a step."""
    table = _table(p.device, p.dtype)
    place = p.clamp(0, 0.5) * (2 * CELLS)
    cell = place.long().clamp_max(CELLS - 1)
    return torch.lerp(table[cell], table[cell + 1], place - cell)


@functools.cache
def _table(device: torch.device, dtype: torch.dtype) -> Tensor:
    values = np.minimum(gamma_star(np.linspace(0, 0.5, CELLS + 1)), CAP)
    return torch.from_numpy(values).to(device, dtype)


RULES: dict[str, Rule] = {
    "fls531": scheduled((5.0, 3.0, 1.0)),
    "fls532": scheduled((5.0, 3.0, 2.0)),
    "fla53": steps((5.0, 3.0), (0.19,), closed=True),
    "fla532": steps((5.0, 3.0, 2.0), (0.19, 0.5), closed=True),
    "flsd53": steps((5.0, 3.0), (0.2,), closed=False),
    "flsd52": steps((5.0, 3.0, 2.0), (0.2, 0.5), closed=False),
    "lambert": continuous,
}
"""The rules that `gamma` may name instead of being a number."""
SCHEDULES = ("fls531", "fls532")
"""Those of them that change over the run."""


def exponent(
    p: Tensor,
    moment: Moment,
    *,
    gamma: float | str = 1.0,
    first_change: float = CHANGES[0],
    second_change: float = CHANGES[1],
    **others: object,
) -> Tensor:
    """The gamma of each row of a loss of the focal family with these options, at its p_y (N,)."""
    values = torch.as_tensor(resolve(gamma, p, moment, (first_change, second_change)), dtype=p.dtype, device=p.device)
    return values.expand(p.shape)


def resolve(gamma: float | str, p: Tensor, moment: Moment, changes: tuple[float, float] = CHANGES) -> Tensor | float:
    """gamma for each p (N,) or (N, C), or one for all: the moment's where it has one, a number as it is, a name by its
    rule. changes: when a schedule changes.
    """
    if moment.gamma is not None:
        return moment.gamma if p.ndim == 1 else moment.gamma.unsqueeze(1)
    if not isinstance(gamma, str):
        return gamma
    return RULES[gamma](p.detach(), sum(moment.progress >= change for change in changes))
