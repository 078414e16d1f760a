"""A calibrator for these rows: by its name, or the one of least cross-validated NLL, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt

from trueodds.calibrators import registry
from trueodds.calibrators.base import Calibrator, checked_fit_data
from trueodds.calibrators.checks import check_number
from trueodds.calibrators.held_out import FOLDS
from trueodds.calibrators.selection.choosing import PLENTY, Candidate, choose
from trueodds.calibrators.selection.folds import Folds
from trueodds.errors import ConfigError, unknown
from trueodds.sums.inputs import Array
from trueodds.texts import short

SELECT = "select"
"""Name that stands for the candidate of least cross-validated NLL."""
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
CURVES = ("beta", "quadratic", "venn_abers")
"""Candidates besides for two classes. Where the truth is affine in the log-odds they cost up to .0025 nats at 100 rows
and .0004 at 1,000; where it is curved they gain about .001 and .006 (five worlds, log-odds of deviation 2.5, means of
25 draws)."""

TOP_CURVES = ("temperature_curve", "structured_curve", "spline", "bbq", "histogram")
"""Candidates besides for more than two classes, from `PLENTY` rows on: they bend the top label's confidence."""


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


def default_candidates(classes: int, rows: int) -> tuple[str, ...]:
    """The candidates of `select` where none are named, for so many classes and rows."""
    if classes == 2:
        return (*CANDIDATES, *CURVES)
    return (*CANDIDATES, *TOP_CURVES) if rows >= PLENTY else CANDIDATES


def default_words() -> str:
    """The default candidates in words, for the help of a command."""
    two, more = ", ".join(CURVES), ", ".join(TOP_CURVES)
    return f"{', '.join(CANDIDATES)}; of two classes also {two}; of more, from {PLENTY} rows on, also {more}"


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

    From 500 rows on, the one of least held-out ECE (top label, 15 bins) among those whose NLL is within one standard
    error of the least: the NLL cannot tell them apart, and hardly sees an error of the confidence of .02.

    Where identity is a candidate, it stays unless that NLL is lower than its own by more than one standard error of
    the rows' paired differences, and of two with fewer than 20 wrong rows, whose spread they do not know: a gain
    within that may be a loss on other rows. A gain of 4.6 nats over all rows, 100 to 1, is enough in any case.

    Passed over, while there is another: a fit on all rows that stopped at a bound or separates them, and, with fewer
    than 20 wrong rows, a calibrator with weights of each class or a curve.

    A candidate is a name or a pair (name, options). Left out, there are six; for two classes beta and quadratic
    scaling and Venn-Abers besides, for more classes and 500 rows those that bend the top label's confidence. There
    are 5 folds, or one for each of fewer rows; they are
    stratified and deterministic: the rows of a class go round the folds in their order. A candidate that cannot be
    fitted in some fold is out, and its line says why.

    The curves of the top label share the fits of their bases among the folds: a curve that is judged on one fold was
    fitted to scores of the others, whose bases had seen the rows of that fold. This moves its NLL by less than the
    base's own change from four fifths of the rows to three.

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
    pairs = _pairs(default_candidates(logits.shape[1], len(logits)) if candidates is None else candidates)
    if not pairs:
        raise ValueError(f"candidates is empty; allowed: names such as {', '.join(CANDIDATES)}")
    calibrator, table, lost = choose(pairs, Folds(logits, labels, folds))
    return Selection(calibrator, table, lost)


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
