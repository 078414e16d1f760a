"""Choice among the candidates by rows that their fits have not seen, with the reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trueodds.calibrators import registry
from trueodds.calibrators.base import Calibrator, FitError, separates
from trueodds.calibrators.fitting.objectives import ece
from trueodds.calibrators.identity import Identity
from trueodds.calibrators.selection.folds import Folds, HeldOut
from trueodds.sums.inputs import Array

BINS = 15
PLENTY = 500
"""Rows from which curves of the top label are candidates, and the ECE breaks ties of the NLL.

If no curve is needed, candidates that bend the confidence added up to .02 nats on 100 rows, and at most about .001 from
200 on (benchmarks/library/selection.py, part curves).
"""
EVIDENCE = float(np.log(100.0))
"""Nats of held-out gain over all rows that are enough without the standard error.

The rows are then a hundred times likelier under the calibrator than without. If no calibration is right, a fold reaches
such a ratio in at most 1 of 100 cases (Markov's inequality). A few expensive errors give the mean gain a standard error
as large as itself.
"""
ENOUGH = 20
"""Number of wrong rows that a calibrator with weights for each class needs.

With fewer, cross-validation cannot tell which of these overfits. benchmarks/library/selection.py measures how often it
chooses one that does ("least").
"""


@dataclass(frozen=True)
class Candidate:
    """One entry of the table of candidates. All numbers are over rows that the fit did not see.

    Examples:
        >>> logits, labels = [[2, 0], [0, 2]] * 100, [0, 1, 0, 0, 0, 1, 1, 1] * 25
        >>> calibrators.select(logits, labels).table[0].name
        'identity'
    """

    name: str
    options: Mapping[str, Any]
    nll: float | None
    """Mean NLL, in nats; None if the candidate could not be fitted."""
    standard_error: float | None
    """Standard error of `nll`: the rows' standard deviation over sqrt(N)."""
    behind: float | None
    """NLL minus that of the chosen candidate; below 0 for those passed over."""
    behind_standard_error: float | None
    """Standard error of `behind`, from the rows' paired differences."""
    within_one_standard_error: bool
    """Whether behind <= behind_standard_error, so that these rows cannot distinguish it from the chosen candidate."""
    ece: float | None = None
    """ECE of the top label in 15 bins; given if `nll` is."""
    problem: str | None = None
    passed_over: str | None = None
    """Reason why it was not chosen although its NLL, or from 500 rows on its ECE, is below that of the chosen one."""
    chosen: str | None = None
    """Reason why it was chosen, with its NLL and standard error; None for the others."""


Pair = tuple[registry.Method, dict[str, Any]]


def choose(pairs: Sequence[Pair], folds: Folds) -> tuple[Calibrator, tuple[Candidate, ...], tuple[Array | None, ...]]:
    """Choose a candidate. Return it fitted on all rows, an entry for each candidate, and their held-out -ln p_y.

    The rules are those of `selection.select`.

    Raises:
        FitError: No candidate can be fitted.
    """
    held_out, problems = {}, {}
    for i, (name, options) in enumerate(pairs):
        try:
            held_out[i] = folds.held_out(name, options)
        except FitError as error:
            problems[i] = str(error)
    if not held_out:
        why_not = "; ".join(f"{_name(pairs[i])}: {problem}" for i, problem in problems.items())
        raise FitError(f"no candidate can be fitted: {why_not}")
    calibrator, best, passed, why = _first_sound(pairs, held_out, folds)
    table = [
        replace(_line(pair, held_out[i], held_out[best].nll_N), passed_over=passed.get(i))
        if i in held_out
        else Candidate(_name(pair), pair[1], None, None, None, None, False, problem=problems[i])
        for i, pair in enumerate(pairs)
    ]
    own = table[best]
    numbers = f"cross-validated NLL {own.nll:.4f} +- {own.standard_error:.4f}, ECE {own.ece:.4f}"
    table[best] = replace(own, chosen=f"{numbers}; {why}")
    return calibrator, tuple(table), tuple(held_out[i].nll_N if i in held_out else None for i in range(len(pairs)))


def _first_sound(
    pairs: Sequence[Pair], held_out: Mapping[int, HeldOut], folds: Folds
) -> tuple[Calibrator, int, dict[int, str], str]:
    """Return the chosen calibrator, its number, the reasons against those of less NLL, and the reason for it.

    If none is sound, it is the first of all.
    """
    rows, wrong = len(folds.labels_N), int((folds.logits_NC.argmax(axis=1) != folds.labels_N).sum())
    plain = next((held_out[i].nll_N for i in held_out if _name(pairs[i]) == Identity.name), None)
    passed: dict[int, str] = {}
    fits: dict[int, Calibrator] = {}

    def sound(i: int) -> bool:
        fault = _too_little(pairs[i][0], held_out[i].nll_N, plain, wrong)
        if fault is None:
            fits[i] = folds.fit(*pairs[i])
            fault = _unsound(fits[i], folds)
        if fault is not None:
            passed[i] = fault
        return fault is None

    ranked = sorted(held_out, key=lambda i: (float(held_out[i].nll_N.mean()), i))
    first = next(filter(sound, ranked), None)
    if first is None:
        name, options = pairs[ranked[0]]
        return folds.fit(name, options), ranked[0], {}, "no candidate is sound"
    over = f", {len(passed)} with a lower NLL passed over" if passed else ""
    if rows < PLENTY:
        return fits[first], first, passed, f"the least of {len(held_out)}{over}"
    alike = [i for i in ranked if i not in passed and _alike(held_out[i].nll_N, held_out[first].nll_N)]
    order = sorted(alike, key=lambda i: (_ece(held_out[i]), i))
    best = next(i for i in order if i == first or sound(i))
    if best == first:
        return fits[first], first, passed, f"the least NLL of {len(held_out)}{over}"
    better = [i for i in ranked[: ranked.index(best)] if i not in passed]
    less = f"{_name(pairs[best])} is within one standard error, and its ECE is less"
    behind = f"its NLL is more than one standard error behind {_name(pairs[first])}'s"
    return (
        fits[best],
        best,
        passed | {i: less if i in alike else behind for i in better},
        (f"the least ECE of the {len(alike)} whose NLL is within one standard error of {_name(pairs[first])}'s{over}"),
    )


def _name(pair: Pair) -> str:
    return registry.name_of(pair[0])


def _too_little(method: registry.Method, nll_N: Array, plain_N: Array | None, wrong: int) -> str | None:
    """Return why these rows are not enough evidence for this calibrator, or None if they are."""
    if not registry.get(method).is_regularised and wrong < ENOUGH:
        return f"{wrong} wrong rows are too few for weights for each class; {ENOUGH} are needed"
    if plain_N is None or registry.name_of(method) == Identity.name:
        return None
    gain, error = mean_and_error(plain_N - nll_N)
    if gain > (1 if wrong >= ENOUGH else 2) * error or gain * len(nll_N) > EVIDENCE:
        return None
    if gain < 0:  # it was asked for its ECE
        return f"its NLL is {-gain:.4f} +- {error:.4f} above that without calibration"
    within = "one standard error" if wrong >= ENOUGH else f"two standard errors ({wrong} wrong rows)"
    return f"its NLL is only {gain:.4f} +- {error:.4f} below that without calibration: within {within}"


def _unsound(calibrator: Calibrator, folds: Folds) -> str | None:
    if calibrator.at_bound:
        return "its fit on all rows stopped at a bound"
    if separates(calibrator, folds.logits_NC, folds.labels_N):
        return "its fit separates the rows: it leaves no doubt about any row"
    return None


def _alike(nll_N: Array, least_N: Array) -> bool:
    behind, error = mean_and_error(nll_N - least_N)
    return behind <= error


def _ece(held_out: HeldOut) -> float:
    return ece(held_out.confidence_N, held_out.right_N, BINS)


def _line(pair: Pair, held_out: HeldOut, best_N: Array) -> Candidate:
    nll, of_nll = mean_and_error(held_out.nll_N)
    behind, error = mean_and_error(held_out.nll_N - best_N)
    return Candidate(_name(pair), pair[1], nll, of_nll, behind, error, behind <= error, _ece(held_out))


def mean_and_error(value_N: Array) -> tuple[float, float]:
    """Return the mean and its standard error."""
    return float(value_N.mean()), float(value_N.std(ddof=1) / np.sqrt(len(value_N)))
