"""Temperature scaling by group: the logarithm of the temperature is a random effect of the group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from trueodds.calibrators.base import Calibrator, Labels, Logits, frozen_array, softmax_over
from trueodds.calibrators.checks import Number, OptionCheck, check_number
from trueodds.calibrators.fitting import objectives
from trueodds.calibrators.fitting.group_loss import EXACT, FURTHEST, GroupLoss, best_spread
from trueodds.calibrators.temperature import (
    SHRINKAGE,
    Bound,
    Temperature,
    _alike,
    bound_notes,
    check_temperature,
    range_of,
    solve_nll,
)
from trueodds.sums.group_names import GroupNames
from trueodds.sums.inputs import Array
from trueodds.texts import quotes, short

LARGEST_SPREAD = 3.0
MOST_GROUPS = 1000
"""Largest number of groups with temperatures of their own: those with the most rows."""


@dataclass(frozen=True)
class SpreadCheck:
    """Check that a spread is None or a number in [0, 3]."""

    def __call__(self, option: str, value: object) -> None:
        if value is not None:
            check_number(option, value, 0.0, LARGEST_SPREAD)


@dataclass(frozen=True, eq=False)
class GroupTemperature(Calibrator):
    """Temperature scaling by group, p = softmax(z / T_g) with ln T_g = ln T + d_g.

    The deviations d_g are random effects: normal with mean 0 and standard deviation s, the `spread`. T and all d_g
    minimise sum_n L_n + (lambda / 2) sum_g d_g^2 with lambda = 1 / s^2. L_n is row n's term of the objective "nll" of
    `Temperature`, at the temperature of its group. A row without a group has T. So a group with few rows keeps nearly
    T, and one with many rows gets its own temperature. Newton's method finds all of them together, to 1e-10. With
    u = z / T_g the derivatives of L_n in d_g are -r and (1 + w) Var_p u + r, where
    r = (1 + w) E_p u - u_y - w E_q u, q = softmax(z), and w is the weight of the prior of `Temperature`.

    The spread has the largest marginal likelihood of the rows among 0, .05, .1, .2, .4 and .8 (empirical Bayes, with
    a flat prior of ln T). Laplace's approximation gives the integral over d and ln T. Spread 0 (infinite lambda) is one
    temperature for all groups, exactly that of `temperature`. Equal groups have it in most samples.

    Rows without a group, and rows of a group that the fit did not know, get T. So do all rows if the call gives no
    groups. If the fit gets no groups, the result is that of `temperature`, and a warning says so. If there are more
    than 1,000 groups, those with the most rows get their own temperatures. If T stops at an end of its range, the fit
    begins at the T of the groups whose mean logit of the true class is above the mean logit. If T stops again, all
    groups get it. Options of `fit`:

    - shrinkage: Number of wrong pseudo-rows in the prior (2), as in `Temperature`. A group has its share of them.
    - spread: Standard deviation s of ln T_g. None (default): chosen from the rows.

    Attributes:
        temperature: Temperature T, for rows of no known group.
        groups: Names of the groups, in alphabetical order.
        log_ratio_G: d_g = ln(T_g / T) of each group.
        rows_G: Number of rows of each group in the fit.
        spread: Standard deviation s. 0: one temperature for all groups.
        bound: End of its range at which T stopped.

    References:
        Guo et al. 2017, On calibration of modern neural networks, section 4.2 (temperature). Laird and Ware 1982,
        Random-effects models for longitudinal data, Biometrics 38, 963 (random effects and their variance by the
        marginal likelihood, with a flat prior of the mean). Tierney and Kadane 1986, JASA 81, 82 (Laplace's
        approximation).

    Examples:
        >>> logits, labels = [[2, 0], [0, 2]] * 200, [0, 1, 0, 0, 0, 1, 1, 1] * 25 + [0, 1] * 100
        >>> tags = ["a"] * 200 + ["b"] * 200
        >>> fitted = calibrators.fit(logits, labels, "group_temperature", groups=tags)
        >>> fitted([[2, 0]] * 3, groups=["a", "b", "other"])[:, 0].round(2)
        array([0.76, 0.99, 0.92])
    """

    name: ClassVar[str] = "group_temperature"
    is_regularised: ClassVar[bool] = True
    uses_groups: ClassVar[bool] = True
    keeps_argmax = True
    checks: ClassVar[Mapping[str, OptionCheck]] = {"shrinkage": Number(0.0, 1e6), "spread": SpreadCheck()}

    temperature: float
    groups: Sequence[str] = ()
    log_ratio_G: npt.ArrayLike = ()
    rows_G: npt.ArrayLike = ()
    spread: float = 0.0
    bound: Bound = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_temperature(self.temperature, self.bound)
        check_number("spread", self.spread, 0.0, LARGEST_SPREAD)
        names = tuple(self.groups) if isinstance(self.groups, list | tuple) else None
        if names is None or not all(isinstance(name, str) and name for name in names) or len({*names}) < len(names):
            raise ValueError(f"groups is {short(self.groups)}; allowed is a list of different names")
        log_ratio_G = frozen_array(self.log_ratio_G, "log_ratio_G", (len(names),))
        rows_G = frozen_array(self.rows_G, "rows_G", (len(names),))
        if (np.abs(log_ratio_G) > FURTHEST).any():
            raise ValueError(
                f"log_ratio_G holds {np.abs(log_ratio_G).max():g}; allowed is [-{FURTHEST:g}, {FURTHEST:g}]"
            )
        object.__setattr__(self, "groups", names)
        object.__setattr__(self, "log_ratio_G", log_ratio_G)
        object.__setattr__(self, "rows_G", rows_G)
        temperature_G = self.temperature * np.exp(log_ratio_G)
        object.__setattr__(self, "_temperatures", dict(zip(names, temperature_G.tolist(), strict=True)))

    @property
    def known_groups(self) -> tuple[str, ...]:
        return tuple(self.groups)

    def groups_of(self, groups: Iterable[str | None]) -> list[str | None]:
        own = self._of_group
        return [name if name in own else None for name in groups]

    @property
    def temperatures(self) -> dict[str, float]:
        """Temperature of each group, by its name."""
        return dict(self._of_group)

    @property
    def group_rows(self) -> dict[str, int]:
        """Number of rows of each group in the fit, by its name."""
        return {name: int(rows) for name, rows in zip(self.groups, np.asarray(self.rows_G), strict=True)}

    @property
    def _of_group(self) -> dict[str, float]:
        temperatures: dict[str, float] = vars(self)["_temperatures"]
        return temperatures

    @property
    def parameters(self) -> int:
        return 1 + len(self.groups)

    @property
    def at_bound(self) -> bool:
        return self.bound is not None

    @classmethod
    def fit(
        cls,
        logits_NC: Logits,
        labels_N: Labels,
        groups_N: GroupNames | None = None,
        *,
        shrinkage: float = SHRINKAGE,
        spread: float | None = None,
    ) -> Self:
        cls.check_values(shrinkage=shrinkage, spread=spread)
        names, index_N = _largest(groups_N)
        rows_G = np.bincount(index_N[index_N >= 0], minlength=len(names)).astype(np.float64)
        if _alike(logits_NC):
            return cls(1.0, names, np.zeros(len(names)), rows_G)
        rows = objectives.Rows(logits_NC, labels_N)
        temperature, bound = solve_nll(rows, shrinkage)
        if bound is not None and names:
            # Groups whose labels contradict the logits must not take away the temperature of the others
            kept_N = ~np.isin(index_N, _inverted_groups(logits_NC, labels_N, index_N, len(names)))
            if kept_N.any() and not kept_N.all():
                temperature, bound = solve_nll(objectives.Rows(logits_NC[kept_N], labels_N[kept_N]), shrinkage)
        if not names or spread == 0 or bound is not None:
            return cls(temperature, names, np.zeros(len(names)), rows_G, 0.0, bound)
        loss = GroupLoss(logits_NC, labels_N, index_N, len(names), temperature, rows.prior)
        found = best_spread(loss) if spread is None else spread
        if found == 0:
            return cls(temperature, names, np.zeros(len(names)), rows_G)
        best = loss.minimum(found, EXACT)
        return cls(temperature * float(np.exp(best.center)), names, best.shift_G - best.center, rows_G, found)

    def _apply(self, logits_NC: Array) -> Array:
        return softmax_over(logits_NC / self.temperature)

    def _apply_groups(self, logits_NC: Array, groups_N: GroupNames) -> Array:
        own = self._of_group
        temperature_N = np.array([own.get(name, self.temperature) for name in groups_N.tolist()])
        return softmax_over(logits_NC / temperature_N[:, None])

    def to_json(self) -> dict[str, Any]:
        tree = super().to_json()
        return tree | {"groups": list(self.groups), "rows_G": [int(rows) for rows in np.asarray(self.rows_G)]}

    def _row_warnings(self, logits_NC: Logits, labels_N: Labels) -> tuple[str, ...]:
        # The groups' temperatures never raise the NLL on the rows of the fit, so only those of T need a check
        notes = Temperature(self.temperature, self.bound)._row_warnings(logits_NC, labels_N)
        _, highest = range_of(objectives.Rows(logits_NC, labels_N))
        if flat := [name for name, value in self.temperatures.items() if self.bound is None and value > highest / 2]:
            notes += (
                f"Groups {quotes(flat, 5)} have temperatures near the end of the range: there the logits hold no"
                " information about the labels, or contradict them. Check that logits and labels belong together.",
            )
        if not self.groups:
            notes += ("The fit got no groups: it has one temperature for all rows, as 'temperature' has.",)
        if len(self.groups) == MOST_GROUPS:
            notes += (
                f"At most {MOST_GROUPS:,} groups get temperatures of their own, those with the most rows. Rows of any"
                " other group get the temperature of all rows.",
            )
        return notes

    def _fit_warnings(self) -> list[str]:
        return bound_notes(self.temperature, self.bound, "NLL")


def _inverted_groups(logits_NC: Logits, labels_N: Labels, index_N: Labels, groups: int) -> list[int]:
    """Return the groups whose true classes have no higher logits than all classes, on average.

    The derivative of their NLL in 1/T is then 0 or above at 1/T = 0, so no finite temperature is best.
    """
    lead_N = logits_NC[np.arange(len(labels_N)), labels_N] - logits_NC.mean(axis=1)
    known_N = index_N >= 0
    lead_G = np.bincount(index_N[known_N], lead_N[known_N], groups)
    return np.flatnonzero(lead_G <= 0).tolist()


def _largest(groups_N: GroupNames | None) -> tuple[tuple[str, ...], Labels]:
    """Return the names of the groups in alphabetical order, and the number of each row's group, -1 without one."""
    if groups_N is None:
        return (), np.empty(0, np.intp)
    counts: dict[str, int] = {}
    for name in groups_N.tolist():
        if name is not None:
            counts[name] = counts.get(name, 0) + 1
    names = sorted(sorted(counts, key=lambda name: (-counts[name], name))[:MOST_GROUPS])
    numbers = {name: number for number, name in enumerate(names)}
    return tuple(names), np.array([numbers.get(name, -1) for name in groups_N.tolist()], dtype=np.intp)
