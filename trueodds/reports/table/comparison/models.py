"""Comparison of models on the same labelled rows: which is better, and which is better calibrated."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from trueodds import metrics
from trueodds.errors import ConfigError
from trueodds.evaluation.paired_differences import ONE_SEED, SQUARED, RowScores, adjust_p_values, differences
from trueodds.metrics.significance.nets import FEWEST, Nets
from trueodds.reports.resolution import read_as_words
from trueodds.reports.table.comparison.compared_sets import SetComparison, Sets, compare_sets, sets_of_models
from trueodds.reports.table.comparison.difference import ComparedDifference
from trueodds.reports.table.evaluation import CalibrationReport
from trueodds.reports.words import align, decimal, percent
from trueodds.sums.bins import check_bins
from trueodds.sums.frames import check_columns, check_index, check_order
from trueodds.sums.inputs import (
    Array,
    as_array,
    as_matrix,
    as_vector,
    both_classes,
    check_labels,
    check_level,
    without_objects,
)
from trueodds.sums.rounding import Given, Resolution, checked_rows, resolution_of, summing_to_1
from trueodds.sums.sums import CalibrationSums
from trueodds.sums.two_columns import label_indices
from trueodds.texts import plural

CROWDED = 0.9
"""Share of a model's rows in one bin from which on a note says so."""
POINTS = 1e4
"""Squared points per squared fraction: a gap of five points is 25."""
NOTE = (
    "ECE, AdaECE, MCE and class-wise ECE are plug-in estimates. Chance alone raises each to about its noise floor,"
    " which is higher for the less sharp of two calibrated models. Their differences are not evidence, and not tested."
)
OF_REPORTS = (
    "Reports keep scores of each row and not all probabilities, so the class-wise ECE is left out. For it, pass the"
    " probabilities: compare({'a': p_NC, 'b': q_NC}, labels)."
)
MEANING = (
    "Squared points: 25 is a gap of 5 points in every bin. It has no noise floor and may be below 0 by chance. Gaps of"
    " unlike sign within a bin cancel."
)


@dataclass(frozen=True, kw_only=True)
class ComparedModel:
    """Figures of one model, or means over its nets if it has several. None if all probabilities would be needed."""

    name: str
    accuracy: float
    nll: float | None
    """Mean NLL in nats; None if the probabilities are in steps too coarse for it."""
    brier: float
    squared_calibration_error: float
    """Squared calibration error without the part that chance adds, in squared fractions."""
    ece: float
    """Plug-in ECE. This and the calibration errors below each have the mean error of a calibrated model beside them."""
    ece_floor: float
    adaptive_ece: float
    adaptive_ece_floor: float
    mce: float
    mce_floor: float
    classwise_ece: float | None = None
    classwise_ece_floor: float | None = None


@dataclass(frozen=True, kw_only=True)
class ModelComparison:
    """Comparison of models on the same rows, each with the first. `print` shows it.

    Examples:
        >>> rng = np.random.default_rng(0)
        >>> true = rng.uniform(0.5, 1, 2000)
        >>> labels = (rng.random(2000) > true).astype(int)
        >>> sure = true + 0.6 * (1 - true)
        >>> models = {"honest": np.stack([true, 1 - true], 1), "sure": np.stack([sure, 1 - sure], 1)}
        >>> comparison = trueodds.compare(models, labels)
        >>> [(one.measure, one.p_value < 0.05) for one in comparison.differences]
        [('error_rate', False), ('nll', True), ('brier', True), ('squared_calibration_error', True)]
    """

    rows: int
    """Number of labelled rows."""
    seeds: int
    """Number of nets of each model."""
    bins: int
    level: float
    models: list[ComparedModel]
    differences: list[ComparedDifference]
    notes: list[str]
    sets: SetComparison | None = None
    """Comparison of conformal sets, if they are given with their level."""

    def as_dict(self) -> dict[str, Any]:
        """Return all numbers as a dict that JSON can hold."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        table = align(self._table(), "<" + ">" * len(self.models))
        sentences = [f"- {one.sentence}" for one in self.differences]
        title = f"{plural(self.rows, 'labelled row')}, the same for all models; intervals at {100 * self.level:.6g}%"
        of_sets = [[str(self.sets)]] if self.sets else []
        return "\n\n".join("\n".join(part) for part in ([title, *table], sentences, self.notes, *of_sets))

    def _table(self) -> list[list[str]]:
        def with_floor(name: str) -> list[str]:
            return [
                f"{decimal(getattr(one, name), 4)}, floor {decimal(getattr(one, f'{name}_floor'), 4)}"
                for one in self.models
            ]

        squared = [f"{POINTS * one.squared_calibration_error:.2f}" for one in self.models]
        rows = [
            ["", *[one.name for one in self.models]],
            ["accuracy", *[percent(one.accuracy) for one in self.models]],
            ["NLL, nats", *[decimal(one.nll, 4) for one in self.models]],
            ["Brier score", *[decimal(one.brier, 4) for one in self.models]],
            ["squared calibration error, squared points", *squared],
            [f"ECE, {self.bins} bins", *with_floor("ece")],
            ["AdaECE", *with_floor("adaptive_ece")],
            ["MCE", *with_floor("mce")],
        ]
        known = all(one.classwise_ece is not None for one in self.models)
        return [*rows, ["class-wise ECE", *with_floor("classwise_ece")]] if known else rows


@dataclass(frozen=True, eq=False)
class ModelRows:
    """Rows of one net: their scores, and its probabilities and labels if all are known."""

    scores: RowScores
    probabilities_NC: Array | None = None
    labels_N: npt.NDArray[np.intp] | None = None


def compare(
    models: Mapping[str, npt.ArrayLike] | Mapping[str, CalibrationReport] | Sequence[CalibrationReport],
    labels: npt.ArrayLike | None = None,
    *,
    classes: Sequence[object] | None = None,
    bins: int = 15,
    level: float = 0.95,
    resolution: Given = None,
    sets: Mapping[str, Sets] | None = None,
    set_level: float | None = None,
    set_rows: int | Mapping[str, int] | None = None,
) -> ModelComparison:
    """Compare models on the same rows, each with the first: error, NLL, Brier score, squared calibration error.

    The differences are paired row by row, and corrected for the number of models (Holm). Plug-in calibration errors are
    shown with their noise floors; their differences are not tested.

    Args:
        models: Probabilities N x C of each model by name. Alternatives: S x N x C for S nets of one method, where net s
            of each model has the same seed; or (N,) or (N, 1), the probabilities of the positive class. Reports of the
            same rows are allowed too, by name or as a list. They leave out the class-wise ECE.
        labels: True classes, as indices, or as names with `classes`. Leave them out with reports, which have their own.
        classes: Names of the columns in their order.
        bins: Number of bins, a divisor of 3,000.
        level: Confidence level of the intervals.
        resolution: Step of rounded probabilities, such as 0.01, or "exact". None: the step of each
            model is inferred if its rows do not sum to 1; else exact. Leave it out with reports, which have their own.
            Steps above 0.02 have no NLL.
        sets: Conformal sets of each model by name, with `set_level`: a bool array N x C, or a list with the classes of
            each row, as names with `classes` and otherwise as indices. Their coverage and size are compared too.
        set_level: Level that the sets should cover, inside (0, 1).
        set_rows: Number of rows that chose the thresholds of the sets, of all models or by name. A test of each model's
            coverage allows for it. None: not known.

    Returns:
        The figures of each model, and its differences from the first.

    Raises:
        ConfigError: There are fewer than two models or three rows, the shapes differ, or a label is not a class. Or
            reports are of other rows, or come with labels or classes. Or sets come without a level, are not of these
            models and rows, or hold something that is not a class. The message states what is missing.
        ValueError: Probabilities or labels are invalid, bins do not divide 3,000, or level is outside (0, 1).

    References:
        Holm (1979), A simple sequentially rejective multiple test procedure.

    Examples:
        >>> one, other = [[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]] * 40, [[0.7, 0.3], [0.6, 0.4], [0.4, 0.6]] * 40
        >>> comparison = trueodds.compare({"a": one, "b": other}, [0, 0, 1] * 40)
        >>> print(comparison.differences[1].sentence)
        b: NLL +0.2310 [+0.1991, +0.2630], higher than a's; a few rows may decide it (p 5.1e-14).
    """
    reports = _reports_of(models)
    if reports is not None:
        if labels is not None or classes is not None or resolution is not None:
            raise ConfigError(
                "reports hold their labels, classes and resolution; give none with them: compare([one, other])"
            )
        of_reports = _nets_of_reports(reports)
        compared = of_nets(of_reports, bins=bins, level=level, notes=[OF_REPORTS])
        one = next(iter(reports.values()))
        names = (one.rows.classes if one.rows else None) or range(one.classes)
        labels_N = one.rows.labels_N if one.rows else np.zeros(0, np.intp)
        return _with_sets(compared, sets, set_level, set_rows, labels_N, names)
    if labels is None or not isinstance(models, Mapping):
        given = f"models is {type(models).__name__}, {'without' if labels is None else 'with'} labels"
        allowed = "give {'a': p_NC, 'b': q_NC} and the labels, or reports of trueodds.report: [one, other]"
        raise ConfigError(f"{given}; {allowed}")
    nets: dict[str, list[ModelRows]] = {}
    frames: dict[str, Any] = {str(name): values for name, values in models.items()}
    check_index(**frames | {"labels": labels})
    check_order(**frames)
    for name, values in frames.items():
        check_columns(values, labels, classes, name)
    arrays = {name: as_vector(without_objects(as_array(values, name))) for name, values in frames.items()}
    _check_columns(arrays)
    notes = list[str]()
    for name, array in arrays.items():
        read_as = resolution_of(_two_axes(array), resolution)
        nets[name] = [_net(one, labels, classes, read_as) for one in (array if array.ndim == 3 else [array])]
        notes += [f"{name}: {read_as_words(read_as)}"] if read_as.words else []
    compared = of_nets(nets, bins=bins, level=level, notes=notes)
    if sets is None and set_level is None and set_rows is None:
        return compared
    shape = _two_axes(next(iter(arrays.values()))).shape
    if compared.seeds > 1:
        raise ConfigError(f"{compared.seeds} nets of each model, and sets; give one net of each: N x C probabilities")
    named = labels if classes is None else label_indices(labels, classes, shape[1])
    columns = range(shape[1]) if classes is None else classes
    return _with_sets(compared, sets, set_level, set_rows, check_labels(named, *shape), columns)


def _with_sets(
    comparison: ModelComparison,
    sets: Mapping[str, Sets] | None,
    level: float | None,
    rows: int | Mapping[str, int] | None,
    labels_N: npt.NDArray[np.intp],
    classes: Sequence[object],
) -> ModelComparison:
    """Add the comparison of the sets, if there are any."""
    if sets is None:
        given = f"set_level {level}" if level is not None else f"set_rows {rows}" if rows is not None else ""
        if given:
            raise ConfigError(f"{given} without sets: give the sets of each model, such as sets={{'a': ..., 'b': ...}}")
        return comparison
    names = [one.name for one in comparison.models]
    of_models = sets_of_models(sets, names, labels_N, classes, level=level, rows=rows)
    return dataclasses.replace(comparison, sets=compare_sets(of_models, level=comparison.level))


def of_nets(
    nets: Mapping[str, Sequence[ModelRows]], *, bins: int = 15, level: float = 0.95, notes: Sequence[str] = ()
) -> ModelComparison:
    """Compare models by the rows of their nets (see `compare`)."""
    check_level(level)
    check_bins(bins)
    if len(nets) < 2:
        raise ConfigError(f"{plural(len(nets), 'model')} to compare; give two or more: {{'a': p_NC, 'b': q_NC}}")
    (first, theirs), *others = nets.items()
    rows = len(theirs[0].scores.nll_N)
    for name, ours in others:
        shapes = [(len(of), *sorted({len(net.scores.nll_N) for net in of})) for of in (theirs, ours)]
        if shapes[0] != shapes[1]:
            sizes = [f"{plural(shape[0], 'net')} of {shape[-1]:,} rows" for shape in shapes]
            cure = "give the same rows and seeds of each model, in the same order"
            raise ConfigError(f"{first!r} has {sizes[0]} and {name!r} {sizes[1]};  {cure}")
    if rows < FEWEST:
        raise ConfigError(
            f"{plural(rows, 'labelled row')} to compare; give {FEWEST} or more; a useful comparison needs hundreds"
        )
    by_name = {
        name: differences([net.scores for net in ours], [net.scores for net in theirs], bins=bins, level=level)
        for name, ours in others
    }
    keys = [(name, measure) for name, of in by_name.items() for measure in of]
    tested = adjust_p_values([(measure, by_name[name][measure]) for name, measure in keys])
    compared = [
        ComparedDifference.of(one, model=name, baseline=first, models=len(others) + 1, seeds=len(theirs))
        for (name, _), one in zip(keys, tested, strict=True)
    ]
    one_seed = [f"Each model is {ONE_SEED}: another training of either may differ."] if len(theirs) == 1 else []
    return ModelComparison(
        rows=rows,
        seeds=len(theirs),
        bins=bins,
        level=level,
        models=[_figures(name, of, bins) for name, of in nets.items()],
        differences=compared,
        notes=[MEANING, NOTE, *_crowding_notes(nets, bins), *one_seed, *notes],
    )


def _reports_of(models: object) -> dict[str, CalibrationReport] | None:
    """Return the reports by name, "report 1", "report 2", ... in a list. None: no value is a report."""
    if isinstance(models, Mapping):
        named = {str(name): value for name, value in models.items()}
    elif isinstance(models, list | tuple):
        named = {f"report {k}": value for k, value in enumerate(models, 1)}
    else:
        return None
    reports = {name: value for name, value in named.items() if isinstance(value, CalibrationReport)}
    if not reports:
        return None
    if others := [name for name in named if name not in reports]:
        kind = type(named[others[0]]).__name__
        raise ConfigError(
            f"{others[0]!r} is {kind}, and {next(iter(reports))!r} a report; give reports or arrays of all"
        )
    return reports


def _nets_of_reports(reports: Mapping[str, CalibrationReport]) -> dict[str, list[ModelRows]]:
    """Return the rows that the reports keep."""
    again = "make it again with trueodds.report(probabilities, labels)"
    rows = {name: one.rows for name, one in reports.items()}
    kept = {name: of for name, of in rows.items() if of is not None}
    if missing := [name for name in rows if name not in kept]:
        raise ConfigError(
            f"{missing[0]!r} has lost its rows (`report.rows` is None), which a comparison needs; {again}"
        )
    first = next(iter(reports))
    kinds = {name: _columns_of(one) for name, one in reports.items()}
    for name, ours in kept.items():
        theirs = kept[first]
        if kinds[name] != kinds[first]:
            cure = "their scores are not comparable; give reports of the same classes"
            raise ConfigError(f"{first!r} is about {kinds[first]} and {name!r} about {kinds[name]}; {cure}")
        if None not in (ours.classes, theirs.classes) and ours.classes != theirs.classes:
            cure = "make both with the same `classes`, in one order"
            raise ConfigError(f"{first!r} has the classes {theirs.classes} and {name!r} {ours.classes}; {cure}")
        if len(ours.labels_N) != len(theirs.labels_N):
            sizes = f"{len(theirs.labels_N):,} rows and {name!r} {len(ours.labels_N):,}"
            raise ConfigError(f"{first!r} has {sizes}; give reports of the same rows, in the same order")
        if other := int(np.count_nonzero(ours.labels_N != theirs.labels_N)):
            problem = f"{first!r} and {name!r} have different labels in {plural(other, 'row')}"
            raise ConfigError(f"{problem}; give reports of the same rows, in the same order")
    return {name: [ModelRows(of.scores)] for name, of in kept.items()}


def _columns_of(report: CalibrationReport) -> str:
    if report.positive is not None:
        return "the positive class's probability alone"
    return plural(report.classes, "column")


def _check_columns(arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Check that all arrays have the same number of classes, and that p(positive) alone is not mixed with others."""
    kinds = {
        name: "the positive class's probability alone" if array.ndim == 1 else f"{array.shape[-1]} columns"
        for name, array in arrays.items()
        if array.ndim
    }
    for name, columns in kinds.items():
        first = next(iter(kinds))
        if columns != kinds[first]:
            cure = "their scores are not comparable; give the same classes of each model"
            raise ConfigError(f"{first!r} has {kinds[first]} and {name!r} {columns}; {cure}")


def _crowding_notes(nets: Mapping[str, Sequence[ModelRows]], bins: int) -> list[str]:
    """Name the models whose rows are nearly all in one bin, as with a rare positive class. Their errors may cancel."""
    found = []
    for name, of in nets.items():
        binned = Nets.of([(net.scores.confidence_N, net.scores.correct_N) for net in of], bins)
        share = float(binned.count_SB.max() / binned.rows)
        if share >= CROWDED and np.ptp(binned.confidence_SN) > 0:
            found.append(
                f"{percent(share)} of the rows of {name} lie in one of {bins} bins of equal width, so its calibration"
                " is compared as a whole and hardly by range. Use more bins (--bins 300, bins=300)."
            )
    return found


def _two_axes(array: npt.NDArray[Any]) -> npt.NDArray[np.floating]:
    """Return the probabilities of all nets of a model as one N x C."""
    joined = array.reshape(-1, array.shape[-1]) if array.ndim == 3 else both_classes(array)
    return as_matrix(joined, "probabilities")


def _net(
    values: npt.NDArray[Any], labels: npt.ArrayLike, classes: Sequence[object] | None, resolution: Resolution
) -> ModelRows:
    """Build the rows of one net."""
    p_NC = checked_rows(both_classes(values), resolution)[0].astype(np.float64)
    named = labels if classes is None else label_indices(labels, classes, p_NC.shape[1])
    labels_N = check_labels(named, *p_NC.shape)
    if values.ndim == 1:
        return ModelRows(RowScores.of_positive(p_NC[:, 1], labels_N == 1, resolution))
    return ModelRows(RowScores.of_probabilities(p_NC, labels_N, resolution), summing_to_1(p_NC, resolution), labels_N)


def _figures(name: str, nets: Sequence[ModelRows], bins: int) -> ComparedModel:
    """Average the figures of a model's nets."""
    of_nets = [_of_net(net, bins) for net in nets]
    means = {key: float(np.mean([one[key] for one in of_nets])) for key in of_nets[0]}
    nll = means.pop("nll")
    return ComparedModel(name=name, nll=None if np.isnan(nll) else nll, **means)


def _of_net(net: ModelRows, bins: int) -> dict[str, float]:
    """Compute the figures of one net."""
    scores = net.scores
    sums = CalibrationSums.from_top(scores.confidence_N, scores.correct_N)
    nets = Nets.of([(scores.confidence_N, scores.correct_N)], bins)
    found = {
        "accuracy": 1 - float(scores.error_N.mean()),
        "nll": float(scores.nll_N.mean()),
        "brier": float(scores.brier_N.mean()),
        SQUARED: float(nets.values_S[0]),
        "ece": metrics.ece(sums, bins=bins),
        "ece_floor": metrics.noise_floor(sums, bins=bins).mean,
        "adaptive_ece": metrics.adaptive_ece(sums, bins=bins),
        "adaptive_ece_floor": metrics.noise_floor(sums, bins=bins, binning="mass").mean,
        "mce": metrics.mce(sums, bins=bins),
        "mce_floor": metrics.mce_noise_floor(sums, bins=bins).mean,
    }
    if net.probabilities_NC is not None and net.labels_N is not None:
        found["classwise_ece"] = metrics.classwise_ece(net.probabilities_NC, net.labels_N, bins=bins)
        found["classwise_ece_floor"] = metrics.classwise_noise_floor(net.probabilities_NC, bins=bins).mean
    return found
