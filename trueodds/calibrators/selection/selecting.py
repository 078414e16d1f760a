"""Fit of a calibrator by name, and selection of the candidate with the least cross-validated NLL."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast, overload

import numpy as np
import numpy.typing as npt

from trueodds.calibrators import registry
from trueodds.calibrators.affine.label_platt import MultilabelPlatt
from trueodds.calibrators.base import Calibrator, FitError, Labels, check_fit_data
from trueodds.calibrators.checks import check_number
from trueodds.calibrators.fitting.rounded import fit_on_steps
from trueodds.calibrators.held_out import FOLDS
from trueodds.calibrators.selection.choosing import PLENTY, Candidate, choose
from trueodds.calibrators.selection.folds import Folds
from trueodds.errors import ConfigError, unknown
from trueodds.sums.frames import check_index
from trueodds.sums.group_names import GivenGroups, check_groups
from trueodds.sums.inputs import Array, without_tensors
from trueodds.sums.rounding import Given, resolution_of
from trueodds.texts import short

SELECT = "select"
"""Method name that stands for the candidate that `select` returns."""
SELECT_OPTIONS = ("candidates", "folds", "ordered")

CANDIDATES = (
    "identity",
    "temperature",
    "ensemble_temperature",
    "bias_corrected_temperature",
    "structured_vector",
    "structured_matrix",
)
"""Default candidates. Their parameters are few or regularised by a penalty."""
CURVES = ("beta", "quadratic", "venn_abers")
"""Further candidates for two classes.

If the truth is affine in the log-odds, they cost up to .0025 nats at 100 rows and .0004 at 1,000. If it is curved, they
gain about .001 and .006 (five worlds, log-odds with standard deviation 2.5, means of 25 draws).
"""

TOP_CURVES = ("temperature_curve", "structured_curve", "spline", "bbq", "histogram")
"""Further candidates for more than two classes, from `PLENTY` rows on. They bend the top label's confidence."""

ORDERED = ("ordered_temperature",)
"""Further candidates for more than two ordered classes. With two it is `bias_corrected_temperature`."""

BY_GROUP = ("group_temperature",)
"""Further candidates if the rows have groups."""


@dataclass(frozen=True)
class Selection:
    """Result of `select`: the chosen calibrator and the table of the candidates.

    Attributes:
        calibrator: The chosen candidate, fitted on all rows.
        table: One entry per candidate, in their order.

    Examples:
        >>> logits, labels = [[2, 0], [0, 2]] * 100, [0, 1, 0, 0, 0, 1, 1, 1] * 25
        >>> calibrators.select(logits, labels).calibrator([[2, 0]]).round(2)
        array([[0.75, 0.25]])
    """

    calibrator: Calibrator
    table: tuple[Candidate, ...]
    nll_MN: tuple[Array | None, ...] = field(default=(), repr=False, compare=False)
    """Held-out -ln p_y of each candidate, row by row, for paired comparisons; None if it could not be fitted."""


def default_candidates(classes: int, rows: int, *, ordered: bool = False, has_groups: bool = False) -> tuple[str, ...]:
    """Return the default candidates of `select` for so many classes and rows. `has_groups`: each row has a group."""
    own = [*(BY_GROUP if has_groups else ()), *registry.joining()]
    if classes == 2:
        return (*CANDIDATES, *CURVES, *own)
    if ordered:
        own = [*ORDERED, *own]
    return (*CANDIDATES, *TOP_CURVES, *own) if rows >= PLENTY else (*CANDIDATES, *own)


def default_words() -> str:
    """Describe the default candidates in words, for the help of a command."""
    two, more = ", ".join(CURVES), ", ".join(TOP_CURVES)
    own = ", ".join(registry.joining())
    registered = f". From other distributions: {own}" if own else ""
    every = ", ".join(CANDIDATES)
    ordered = f"For ordered classes also {', '.join(ORDERED)}"
    several = f"For more classes, from {PLENTY} rows on, also {more}"
    by_group = f"For rows with groups also {', '.join(BY_GROUP)}"
    return f"{every}. For two classes also {two}. {several}. {ordered}. {by_group}{registered}"


def check(method: registry.Method, options: Mapping[str, object] | None = None) -> None:
    """Check a method and its options before any long computation.

    Args:
        method: Name or class of a calibrator, or "select".
        options: Options of `fit` for this method.

    Raises:
        ConfigError: A name is unknown. The message lists the allowed names and the nearest one. Or a class is not a
            calibrator.
        ExtensionError: The calibrator of another distribution cannot be used.
        ValueError: An option has a value that is not allowed, or the objective does not use the option.

    Examples:
        >>> calibrators.check("temperature", {"shrinkage": 0.0})
        >>> try:
        ...     calibrators.check("temperature", {"objective": "brier", "bins": 10})
        ... except ValueError as error:
        ...     print(str(error).partition(";")[0])
        bins is 10, which the objective 'brier' does not read
    """
    options = options or {}
    if not isinstance(method, str | type):
        raise ConfigError(
            f"method is {short(method)}; allowed is the name or class of a calibrator, after logits and labels"
        )
    if isinstance(method, str) and method not in (names := [*registry.names(), SELECT]):
        raise unknown("calibrator", method, names)
    if method != SELECT:
        registry.check_options(method, options)
        return
    for option in options:
        if option not in SELECT_OPTIONS:
            raise unknown(f"option of {SELECT!r}", option, SELECT_OPTIONS)


@overload
def fit(
    logits_NC: npt.ArrayLike,
    labels_N: npt.ArrayLike,
    *,
    multilabel: Literal[True],
    classes: Sequence[object] | None = None,
) -> MultilabelPlatt: ...
@overload
def fit(
    logits_NC: npt.ArrayLike,
    labels_N: npt.ArrayLike,
    method: registry.Method = SELECT,
    *,
    groups: GivenGroups = None,
    resolution: Given = None,
    **options: Any,
) -> Calibrator: ...
def fit(
    logits_NC: npt.ArrayLike,
    labels_N: npt.ArrayLike,
    method: registry.Method = SELECT,
    *,
    groups: GivenGroups = None,
    resolution: Given = None,
    multilabel: bool = False,
    **options: Any,
) -> Calibrator | MultilabelPlatt:
    """Fit a calibrator on validation rows. `calibrator(other_logits)` then returns probabilities.

    If a model only returns probabilities, pass `trueodds.logits_of(probabilities)`, here and to the calibrator. The
    calibrator's `warnings` report anything that the fit makes worse: on these rows, or on rows that were left out of a
    similar fit.

    Args:
        logits_NC: Logits, shape (N, C), of any float dtype (computed in float64).
        labels_N: True classes, shape (N,), as class indices.
        method: Name of a calibrator (`trueodds.calibrators.names()`), its class, or "select" for the best candidate
            by cross-validation (`trueodds.calibrators.select`).
        groups: Group of each row, such as its tag, shape (N,): strings, integers, or None for a row without one. For
            "group_temperature", and for "select", where it is then a candidate. Give the groups of other rows to the
            calibrator: `calibrator(other_logits, groups=other_groups)`.
        resolution: Step of the probabilities from which `trueodds.logits_of` computed the logits with the same
            `resolution`, such as 0.01. The result is then a `Rounded` calibrator. None and "exact": not rounded.
        multilabel: Each column of the logits is a yes/no label of its own. `labels_N` then has the shape (N, L), with
            0, 1, and NaN for a truth that is not known. The result is a `MultilabelPlatt`. The only option is
            `classes`, the names of the labels.
        options: Options of the calibrator (`trueodds.calibrators.options`), or those of `select`, which also returns
            the table of candidates.

    Returns:
        The fitted calibrator.

    Raises:
        ConfigError: A name or option is unknown, or the resolution is not a step.
        ValueError: Logits are empty, of a wrong shape, not finite, or probabilities; labels are outside the classes; an
            option has a value that is not allowed, or the objective does not use it; groups do not fit the rows, or
            the calibrator treats all rows alike.
        FitError: The rows do not determine this calibrator; for example, a class has no rows.

    Examples:
        >>> logits, labels = [[2, 0], [0, 2]] * 100, [0, 1, 0, 0, 0, 1, 1, 1] * 25
        >>> round(calibrators.fit(logits, labels, "temperature").temperature, 3)
        1.777
        >>> calibrators.fit(logits, labels, candidates=["identity", "temperature"]).name
        'temperature'
    """
    if not isinstance(multilabel, bool):
        raise ConfigError(f"multilabel is {multilabel!r}; allowed are True and False")
    if multilabel:
        return _of_labels(logits_NC, labels_N, method, groups, resolution, options)
    if len(shape := np.shape(without_tensors(labels_N))) > 1:
        raise ConfigError(
            f"labels has shape {shape}; allowed is one class for each row: for independent yes/no labels pass"
            " multilabel=True, for one column a class pass labels.argmax(axis=1)"
        )
    check(method, options)
    if method == SELECT:
        return select(logits_NC, labels_N, groups=groups, resolution=resolution, **options).calibrator
    step = _step_of(resolution)
    if step is None:
        return registry.fit_by_name(method, logits_NC, labels_N, groups, **options)
    return fit_on_steps(
        *check_fit_data(logits_NC, labels_N), step, lambda z, y: registry.fit_by_name(method, z, y, groups, **options)
    )


def _of_labels(
    logits: npt.ArrayLike,
    labels: npt.ArrayLike,
    method: registry.Method,
    groups: GivenGroups,
    resolution: Given,
    options: Mapping[str, Any],
) -> MultilabelPlatt:
    """Fit the calibrator of independent labels.

    Raises:
        ConfigError: Another method, groups, a resolution, or an option other than `classes` is given.
    """
    if method not in (SELECT, MultilabelPlatt.name):
        raise ConfigError(
            f"method is {registry.name_of(method)!r} with multilabel=True; allowed is {MultilabelPlatt.name!r}: leave"
            " the method out"
        )
    if groups is not None:
        raise ConfigError("groups are given with multilabel=True; allowed is None: leave them out")
    if _step_of(resolution) is not None:
        raise ConfigError(f"resolution is {short(resolution)} with multilabel=True; allowed is None: leave it out")
    if other := [name for name in options if name != "classes"]:
        raise unknown("option with multilabel=True", other[0], ["classes"])
    return MultilabelPlatt.fit(logits, labels, **options)


def _step_of(resolution: Given) -> float | None:
    """Return the step of a resolution; None if exact or not given."""
    return None if resolution is None else resolution_of(np.empty((0, 1)), resolution).step


def select(
    logits_NC: npt.ArrayLike,
    labels_N: npt.ArrayLike,
    *,
    candidates: Sequence[registry.Method | tuple[registry.Method, Mapping[str, Any]]] | None = None,
    folds: int | None = None,
    groups: Iterable[Any] | None = None,
    resolution: Given = None,
    ordered: bool = False,
) -> Selection:
    """Fit all candidates and return the best one by cross-validated NLL and ECE, fitted on all rows.

    The candidate with the least NLL wins. Among equals the earlier one wins. From 500 rows on, the candidate with the
    least cross-validated ECE (top label, 15 bins) wins among those whose NLL is within one standard error of the least.
    The NLL cannot distinguish these, and hardly detects a calibration error of .02.

    If identity is a candidate, it stays unless the least NLL is lower than its own by more than one standard error of
    the rows' paired differences. With fewer than 20 wrong rows it must be two standard errors, because so few errors do
    not show their spread. A smaller gain may be a loss on other rows. A gain of 4.6 nats over all rows, 100 to 1, is
    always enough.

    While there is another candidate, some are passed over: a fit on all rows that stopped at a bound or separates the
    rows and, with fewer than 20 wrong rows, a calibrator with weights for each class or a curve.

    The folds are stratified and deterministic: the rows of a class are dealt out to the folds in their order. A
    candidate that cannot be fitted in some fold is excluded, and its entry states why. The curves of the top label
    share the fits of their bases among the folds. A curve that is evaluated on one fold was fitted to scores of the
    other folds, whose bases had seen the rows of that fold. This changes its NLL by less than the base itself changes
    from four fifths of the rows to three.

    Args:
        logits_NC: Logits, shape (N, C).
        labels_N: True classes, shape (N,).
        candidates: Names, classes, or pairs of one of these with options. None: six candidates; with two classes also
            beta, quadratic and Venn-Abers; with more classes and at least 500 rows also those that bend the top label's
            confidence; with `ordered` also those for levels; with `groups` also `group_temperature`; and registered
            calibrators of other distributions that set `joins_select`.
        folds: Number of folds. None: 5, or one per row if there are fewer rows.
        groups: Group of each row, as `fit` has it. Only candidates by group read it.
        resolution: Step of rounded probabilities, as `fit` has it. All rows determine the power of the zeros, and then
            the candidates are compared.
        ordered: Whether the classes are levels, the lowest first.

    Returns:
        The chosen calibrator and the table of the candidates.

    Raises:
        ConfigError: A name or option is unknown.
        ValueError: The data are invalid, there are no candidates, an entry is not a candidate, or `folds` is outside
            2..N.
        FitError: No candidate can be fitted, or there is a single row.

    Examples:
        >>> logits, labels = [[2, 0], [0, 2]] * 100, [0, 1, 0, 0, 0, 1, 1, 1] * 25
        >>> calibrators.select(logits, labels, candidates=["identity", "temperature"]).calibrator.name
        'temperature'
    """
    logits, labels = check_fit_data(logits_NC, labels_N)
    check_index(logits=logits_NC, groups=groups)
    if len(logits) < 2:
        raise FitError(
            "logits has 1 row, and cross-validation needs at least 2; give more rows, or choose 'temperature'"
        )
    folds = min(FOLDS, len(logits)) if folds is None else folds
    check_number("folds", folds, 2, len(logits), whole=True)
    if not isinstance(ordered, bool):
        raise ValueError(f"ordered is {ordered!r}; allowed are True and False")
    groups_N = None if groups is None else check_groups(groups, len(logits))
    has_groups = groups_N is not None
    default = default_candidates(logits.shape[1], len(logits), ordered=ordered, has_groups=has_groups)
    pairs = _pairs(default if candidates is None else candidates)
    if not pairs:
        raise ValueError(f"candidates is empty; allowed: names such as {', '.join(CANDIDATES)}")
    step = _step_of(resolution)
    if step is None:
        return Selection(*choose(pairs, Folds(logits, labels, folds, groups_N)))
    results = list[Any]()

    def fit_inner(z_NC: Array, y_N: Labels) -> Calibrator:
        chosen, *others = choose(pairs, Folds(z_NC, y_N, folds, groups_N))
        results.extend(others)
        return chosen

    return Selection(fit_on_steps(logits, labels, step, fit_inner), *results)


def _pairs(
    candidates: Sequence[registry.Method | tuple[registry.Method, Mapping[str, Any]]],
) -> list[tuple[registry.Method, dict[str, Any]]]:
    if isinstance(candidates, str) or not isinstance(candidates, Iterable):
        raise ValueError(f"candidates is {candidates!r}; allowed is a sequence: [{candidates!r}], or leave it out")
    pairs: list[tuple[registry.Method, dict[str, Any]]] = []
    for candidate in cast(Iterable[object], candidates):
        match candidate:
            case str() | type():
                pairs.append((candidate, {}))
            case (str() | type() as name, Mapping() as options):
                pairs.append((name, dict(options)))
            case _:
                allowed = "names, classes and pairs (name, options)"
                raise ValueError(f"candidates holds {candidate!r}; allowed are {allowed}")
    return pairs
