"""A calibrator for these rows: by its name, or the one of least cross-validated NLL, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from trueodds.calibrators import registry
from trueodds.calibrators.base import Calibrator, FitError, Labels, Logits, checked_fit_data, separates
from trueodds.calibrators.checks import check_number
from trueodds.calibrators.held_out import FOLDS, nll_without, stratified
from trueodds.errors import ConfigError, unknown
from trueodds.sums.inputs import Array
from trueodds.texts import short

SELECT = "select"
"""In place of a calibrator's name: the candidate of least cross-validated NLL."""
SELECT_OPTIONS = ("candidates", "folds")

CANDIDATES = (
    "identity",
    "temperature",
    "ensemble_temperature",
    "bias_corrected_temperature",
    "structured_vector",
    "structured_matrix",
)
"""The default choice: those whose parameters are few or held by a penalty."""
CURVES = ("beta", "quadratic")
"""Candidates besides for two classes. Where the truth is affine in the log-odds they cost up to .0025 nats at 100 rows
and .0004 at 1,000; where it is curved they gain about .001 and .006 (five worlds, log-odds of deviation 2.5, means of
25 draws)."""


ENOUGH = 20
"""Wrong rows that a calibrator with weights of each class needs. With fewer, cross-validation cannot tell which of
these overfits: benchmarks/selection.py measures how often it takes one that does ("least")."""


@dataclass(frozen=True)
class Candidate:
    """One line of the table; all numbers are over rows that the fit did not see.

    >>> logits, labels = [[2, 0], [0, 2]] * 100, [0, 1, 0, 0, 0, 1, 1, 1] * 25
    >>> calibrators.select(logits, labels).table[0].name
    'identity'
    """

    name: str
    options: Mapping[str, Any]
    nll: float | None
    """Mean, in nats; None if it could not be fitted."""
    standard_error: float | None
    """Of `nll`: the rows' standard deviation over sqrt(N)."""
    behind: float | None
    """nll minus the chosen one's: below 0 for those passed over."""
    behind_standard_error: float | None
    """Of `behind`, from the rows' paired differences."""
    within_one_standard_error: bool
    """behind <= behind_standard_error: these rows cannot tell it from the chosen one."""
    problem: str | None = None
    passed_over: str | None = None
    """Why it was not chosen although its NLL is lower than the chosen one's."""


@dataclass(frozen=True)
class Selection:
    """The winner, fitted on all rows, and the table in the order of the candidates.

    >>> logits, labels = [[2, 0], [0, 2]] * 100, [0, 1, 0, 0, 0, 1, 1, 1] * 25
    >>> calibrators.select(logits, labels).calibrator([[2, 0]]).round(2)
    array([[0.75, 0.25]])
    """

    calibrator: Calibrator
    table: tuple[Candidate, ...]
    nll_MN: tuple[Array | None, ...] = field(default=(), repr=False, compare=False)
    """Each candidate's held-out -ln p_y, row by row, for paired comparisons; None if it could not be fitted."""


def default_candidates(classes: int) -> tuple[str, ...]:
    """The candidates of `select` where none are named."""
    return (*CANDIDATES, *CURVES) if classes == 2 else CANDIDATES


def check(method: str, options: Mapping[str, object] | None = None) -> None:
    """Refuses a method, an option or its value that `fit` would refuse whatever the rows: before anything long.

    Raises:
        ConfigError: an unknown name, with what is allowed and the nearest.
        ValueError: a value of an option that the fit does not take, or an option that its objective does not read.

    >>> calibrators.check("temperature", {"shrinkage": 0.0})
    >>> calibrators.check("temperature", {"objective": "brier", "bins": 10})
    Traceback (most recent call last):
    ValueError: bins is 10, which the objective 'brier' does not read; leave it out, or choose an objective that does: \
ece, adaptive_ece, sb_ece, sb_ece_label
    """
    options = options or {}
    if not isinstance(method, str):
        raise ConfigError(f"method is {short(method)}; allowed is the name of a calibrator, after logits and labels")
    if method not in (names := [*registry.names(), SELECT]):
        raise unknown("calibrator", method, names)
    if method != SELECT:
        registry.check_options(method, options)
        return
    for option in options:
        if option not in SELECT_OPTIONS:
            raise unknown(f"option of {SELECT!r}", option, SELECT_OPTIONS)


def fit(logits_NC: npt.ArrayLike, labels_N: npt.ArrayLike, method: str = SELECT, **options: Any) -> Calibrator:
    """The calibrator that these validation rows say: `calibrator(other_logits)` gives probabilities.

    Logits are N x C, of any float dtype (computed in float64); labels are class indices. `method` is a calibrator's
    name (`trueodds.calibrators.names()`), or "select": the candidate of least cross-validated NLL. `options` are the
    calibrator's own (`trueodds.calibrators.options`), or those of `select`, which also gives the candidates' table.
    Of a model that gives probabilities only, pass `trueodds.logits_of(probabilities)`, here and to the calibrator.

    What the fit makes worse on these rows, or on rows held out of fits like it, is in the calibrator's `warnings`.

    Raises:
        ConfigError: an unknown name or option.
        ValueError: empty, misshapen or non-finite logits, probabilities in their place, labels outside the classes, an
            option's value, an option that the objective does not read.
        FitError: rows that do not determine this calibrator, such as a class that never occurs.

    >>> logits, labels = [[2, 0], [0, 2]] * 100, [0, 1, 0, 0, 0, 1, 1, 1] * 25
    >>> round(calibrators.fit(logits, labels, "temperature").temperature, 3)
    1.777
    >>> calibrators.fit(logits, labels, candidates=["identity", "temperature"]).name
    'temperature'
    """
    check(method, options)
    if method != SELECT:
        return registry.fit_by_name(method, logits_NC, labels_N, **options)
    return select(logits_NC, labels_N, **options).calibrator


def select(
    logits_NC: npt.ArrayLike,
    labels_N: npt.ArrayLike,
    *,
    candidates: Sequence[str | tuple[str, Mapping[str, Any]]] | None = None,
    folds: int | None = None,
) -> Selection:
    """The candidate of least cross-validated NLL, fitted on all rows; the earlier one of equals.

    Passed over, while there is another: a fit on all rows that stopped at a bound or separates them, and, with fewer
    than 20 wrong rows, a calibrator with weights of each class.

    A candidate is a name or a pair (name, options); left out, there are six, and for two classes beta and quadratic
    scaling besides. There are 5 folds, or one for each of fewer rows; they are
    stratified and deterministic: the rows of a class go round the folds in their order. A candidate that cannot be
    fitted in some fold is out, and its line says why.

    Raises:
        ConfigError: an unknown name or option.
        ValueError: bad data, no candidates or what is none, folds outside 2..N.
        FitError: no candidate can be fitted.

    >>> logits, labels = [[2, 0], [0, 2]] * 100, [0, 1, 0, 0, 0, 1, 1, 1] * 25
    >>> calibrators.select(logits, labels, candidates=["identity", "temperature"]).calibrator.name
    'temperature'
    """
    logits, labels = checked_fit_data(logits_NC, labels_N)
    if len(logits) < 2:
        raise ValueError(f"logits has {len(logits)} row; cross-validation needs at least 2")
    folds = min(FOLDS, len(logits)) if folds is None else folds
    check_number("folds", folds, 2, len(logits), whole=True)
    pairs = _pairs(default_candidates(logits.shape[1]) if candidates is None else candidates)
    if not pairs:
        raise ValueError(f"candidates is empty; allowed: names such as {', '.join(CANDIDATES)}")
    fold_N = stratified(labels, folds)
    lost, problems = {}, {}
    for i, (name, options) in enumerate(pairs):
        try:
            lost[i] = _held_out(name, options, logits, labels, fold_N)
        except FitError as error:
            problems[i] = str(error)
    if not lost:
        raise FitError("no candidate can be fitted: " + "; ".join(f"{pairs[i][0]}: {p}" for i, p in problems.items()))
    ranked = sorted(lost, key=lambda i: (float(lost[i].mean()), i))
    winner, best, passed = _first_sound(ranked, pairs, logits, labels)
    table = tuple(
        replace(_line(*pair, lost[i], lost[best]), passed_over=passed.get(i))
        if i in lost
        else Candidate(*pair, None, None, None, None, False, problems[i])
        for i, pair in enumerate(pairs)
    )
    return Selection(winner, table, tuple(lost.get(i) for i in range(len(pairs))))


def _first_sound(
    ranked: Sequence[int], pairs: Sequence[tuple[str, dict[str, Any]]], logits_NC: Logits, labels_N: Labels
) -> tuple[Calibrator, int, dict[int, str]]:
    """(calibrator, its number, why those before it were passed over): the first of all if none is sound."""
    wrong = int((logits_NC.argmax(axis=1) != labels_N).sum())
    passed: dict[int, str] = {}
    for i in ranked:
        name, options = pairs[i]
        if not registry.get(name).held and wrong < ENOUGH:
            passed[i] = f"{wrong} wrong rows are too few for weights of each class; {ENOUGH} are needed"
            continue
        calibrator = registry.fit_by_name(name, logits_NC, labels_N, **options)
        if calibrator.at_bound:
            passed[i] = "its fit on all rows stopped at a bound"
        elif separates(calibrator, logits_NC, labels_N):
            passed[i] = "its fit separates the rows: it has no doubt left about any"
        else:
            return calibrator, i, passed
    name, options = pairs[ranked[0]]
    return registry.fit_by_name(name, logits_NC, labels_N, **options), ranked[0], {}


def _pairs(candidates: Sequence[str | tuple[str, Mapping[str, Any]]]) -> list[tuple[str, dict[str, Any]]]:
    if isinstance(candidates, str) or not isinstance(candidates, Iterable):
        raise ValueError(f"candidates is {candidates!r}; allowed is a sequence: [{candidates!r}], or leave it out")
    pairs: list[tuple[str, dict[str, Any]]] = []
    for candidate in candidates:
        match candidate:
            case str():
                pairs.append((candidate, {}))
            case (str() as name, Mapping() as options):
                pairs.append((name, dict(options)))
            case _:
                raise ValueError(f"candidates holds {candidate!r}; allowed are names and pairs (name, options)")
    return pairs


def _held_out(name: str, options: Mapping[str, Any], logits_NC: Logits, labels_N: Labels, fold_N: Labels) -> Array:
    """-ln p_y of every row, by the fit on the other folds."""
    registry.check_options(name, options)
    nll_N = np.empty(len(labels_N))
    for fold in range(int(fold_N.max()) + 1):
        inside_N = fold_N == fold
        nll_N[inside_N] = nll_without(registry.get(name), options, logits_NC, labels_N, inside_N)
    return nll_N


def _line(name: str, options: Mapping[str, Any], nll_N: Array, best_N: Array) -> Candidate:
    root, behind_N = float(np.sqrt(len(nll_N))), nll_N - best_N
    behind, error = float(behind_N.mean()), float(behind_N.std(ddof=1)) / root
    return Candidate(
        name, options, float(nll_N.mean()), float(nll_N.std(ddof=1)) / root, behind, error, bool(behind <= error)
    )
