"""Models beside each other on the same labelled rows: which is better, and which is better calibrated."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from trueodds import metrics
from trueodds.errors import ConfigError
from trueodds.evaluation.paired_differences import MEASURES, ONE_SEED, SQUARED, RowScores, adjust_p_values, differences
from trueodds.metrics.significance.nets import FEWEST, Nets
from trueodds.reports.table.evaluation import aligned, indices
from trueodds.reports.words import decimal, percent
from trueodds.sums.bins import check_bins
from trueodds.sums.inputs import Array, both_classes, check_labels, check_level, check_probabilities, without_tensors
from trueodds.sums.sums import CalibrationSums
from trueodds.texts import plural

CROWDED = 0.9
"""Share of a model's rows in one bin from which on the comparison of calibration says so."""
POINTS = 1e4
"""Squared points in a squared fraction: a gap of five points is 25."""
NOTE = (
    "ECE, AdaECE, MCE and class-wise ECE are plug-in estimates. Chance alone raises each to about its noise floor,"
    " which is higher for the less sharp of two calibrated models. Their differences are no evidence, and not tested."
)
MEANING = (
    "Squared points: 25 is a gap of 5 points in every bin. It has no noise floor and may be below 0 by chance. Gaps of"
    " unlike sign within a bin cancel."
)


@dataclass(frozen=True, kw_only=True)
class ComparedModel:
    """The figures of one model; means over its nets where it has several. None: not known without all probabilities."""

    name: str
    accuracy: float
    nll: float
    brier: float
    squared_calibration_error: float
    """Without the part that chance adds, in squared fractions."""
    ece: float
    """Plug-in, as the other calibration errors below; each beside what a calibrated model shows on average."""
    ece_floor: float
    adaptive_ece: float
    adaptive_ece_floor: float
    mce: float
    mce_floor: float
    classwise_ece: float | None = None
    classwise_ece_floor: float | None = None


@dataclass(frozen=True, kw_only=True)
class ComparedDifference:
    """A model's measure minus the first model's, on the same rows."""

    model: str
    baseline: str
    measure: str
    """error_rate, nll, brier or squared_calibration_error."""
    value: float
    lower: float
    upper: float
    p_value: float
    """After Holm's correction for the number of models beside the first."""
    detectable: float | None
    """The difference that would have been seen in 80% of repetitions."""
    sentence: str


@dataclass(frozen=True, kw_only=True)
class ModelComparison:
    """Models on the same rows, each beside the first: `print` it.

    >>> rng = np.random.default_rng(0)
    >>> true = rng.uniform(0.5, 1, 2000)
    >>> labels = (rng.random(2000) > true).astype(int)
    >>> sure = true + 0.6 * (1 - true)
    >>> models = {"honest": np.stack([true, 1 - true], 1), "sure": np.stack([sure, 1 - sure], 1)}
    >>> found = trueodds.compare(models, labels)
    >>> [(one.measure, one.p_value < 0.05) for one in found.differences]
    [('error_rate', False), ('nll', True), ('brier', True), ('squared_calibration_error', True)]
    """

    rows: int
    seeds: int
    """Nets of each model."""
    bins: int
    level: float
    models: list[ComparedModel]
    differences: list[ComparedDifference]
    notes: list[str]

    def as_dict(self) -> dict[str, Any]:
        """All numbers, as JSON holds them."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        table = aligned(self._table(), "<" + ">" * len(self.models))
        said = [f"- {one.sentence}" for one in self.differences]
        title = f"{plural(self.rows, 'labelled row')}, the same of all; intervals at {100 * self.level:.6g}%"
        return "\n\n".join("\n".join(part) for part in ([title, *table], said, self.notes))

    def _table(self) -> list[list[str]]:
        def floored(name: str) -> list[str]:
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
            [f"ECE, {self.bins} bins", *floored("ece")],
            ["AdaECE", *floored("adaptive_ece")],
            ["MCE", *floored("mce")],
        ]
        known = all(one.classwise_ece is not None for one in self.models)
        return [*rows, ["class-wise ECE", *floored("classwise_ece")]] if known else rows


@dataclass(frozen=True, eq=False)
class Net:
    """One net's rows: their scores, and its probabilities and labels where all are known."""

    scores: RowScores
    probabilities_NC: Array | None = None
    labels_N: npt.NDArray[np.intp] | None = None


def compare(
    models: Mapping[str, npt.ArrayLike],
    labels: npt.ArrayLike,
    *,
    classes: Sequence[object] | None = None,
    bins: int = 15,
    level: float = 0.95,
) -> ModelComparison:
    """Compare models on the same rows, each with the first: error, NLL, Brier score, squared calibration error.

    The differences are paired, row by row, and corrected for the number of models (Holm). Plug-in calibration errors
    are shown beside their noise floors, and their differences are not tested.

    Args:
        models: By name, probabilities N x C; or S x N x C, those of S nets of one method, net s of each with the same
            seed; or those of the positive class alone, (N,).
        labels: The true classes, by index, or by name with `classes`.
        classes: Names of the columns in their order.
        bins: A divisor of 3,000.
        level: Nominal coverage.

    Raises:
        ConfigError: fewer than two models or three rows, other shapes than the first's, or labels that are no class.
        ValueError: bad probabilities or labels, bins that do not divide 3,000, a level outside (0, 1).

    >>> one, other = [[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]] * 40, [[0.7, 0.3], [0.6, 0.4], [0.4, 0.6]] * 40
    >>> found = trueodds.compare({"a": one, "b": other}, [0, 0, 1] * 40)
    >>> print(found.differences[1].sentence)
    b: NLL +0.2310 [+0.2208, +0.2413], higher than a's (p 3e-76).
    """
    nets: dict[str, list[Net]] = {}
    arrays = {name: np.asarray(without_tensors(values)) for name, values in models.items()}
    _check_columns(arrays)
    for name, array in arrays.items():
        nets[name] = [_net(one, labels, classes) for one in (array if array.ndim == 3 else [array])]
    return of_nets(nets, bins=bins, level=level)


def of_nets(
    nets: Mapping[str, Sequence[Net]], *, bins: int = 15, level: float = 0.95, notes: Sequence[str] = ()
) -> ModelComparison:
    """Compare models by their nets' rows; see `compare`."""
    check_level(level)
    check_bins(bins)
    if len(nets) < 2:
        raise ConfigError(f"{plural(len(nets), 'model')} to compare; give two or more: {{'a': p_NC, 'b': q_NC}}")
    (first, theirs), *others = nets.items()
    rows = len(theirs[0].scores.nll_N)
    for name, ours in others:
        shapes = [(len(of), *sorted({len(net.scores.nll_N) for net in of})) for of in (theirs, ours)]
        if shapes[0] != shapes[1]:
            said = [f"{plural(shape[0], 'net')} of {shape[-1]:,} rows" for shape in shapes]
            cure = "give the same rows and seeds of each, in one order"
            raise ConfigError(f"{first!r} has {said[0]} and {name!r} {said[1]}; {cure}")
    if rows < FEWEST:
        raise ConfigError(f"{plural(rows, 'labelled row')} to compare; give {FEWEST} or more, hundreds to see anything")
    found = {
        name: differences([net.scores for net in ours], [net.scores for net in theirs], bins=bins, level=level)
        for name, ours in others
    }
    keys = [(name, measure) for name in found for measure in MEASURES]
    compared = []
    for (name, measure), one in zip(keys, adjust_p_values([(m, found[n][m]) for n, m in keys]), strict=True):
        d = one.difference
        assert d.lower is not None and d.upper is not None
        compared.append(
            ComparedDifference(
                model=name,
                baseline=first,
                measure=measure,
                value=d.mean,
                lower=d.lower,
                upper=d.upper,
                p_value=one.adjusted_p,
                detectable=one.detectable,
                sentence=one.sentence(name, f"{first}'s", corrected=len(others) > 1, seeds=len(theirs) > 1),
            )
        )
    one_seed = [f"Each model is {ONE_SEED}: another training of either may differ."] if len(theirs) == 1 else []
    return ModelComparison(
        rows=rows,
        seeds=len(theirs),
        bins=bins,
        level=level,
        models=[_figures(name, of, bins) for name, of in nets.items()],
        differences=compared,
        notes=[MEANING, NOTE, *_crowded(nets, bins), *one_seed, *notes],
    )


def _check_columns(arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Raises ConfigError for p(positive) beside the probabilities of all classes, or other numbers of classes."""
    said = {
        name: "the positive class's probability alone" if array.ndim == 1 else f"{array.shape[-1]} columns"
        for name, array in arrays.items()
        if array.ndim
    }
    for name, columns in said.items():
        first = next(iter(said))
        if columns != said[first]:
            cure = "their scores are of other things; give the same classes of each"
            raise ConfigError(f"{first!r} has {said[first]} and {name!r} {columns}; {cure}")


def _crowded(nets: Mapping[str, Sequence[Net]], bins: int) -> list[str]:
    """Say whose rows lie in one bin almost all, as those of a rare positive class do: their errors may cancel."""
    found = []
    for name, of in nets.items():
        binned = Nets.of([(net.scores.confidence_N, net.scores.correct_N) for net in of], bins)
        share = float(binned.count_SB.max() / binned.rows)
        if share >= CROWDED and np.ptp(binned.confidence_SN) > 0:
            found.append(
                f"{percent(share)} of the rows of {name} lie in one of {bins} bins of equal width, so its calibration"
                " is compared on the whole, hardly by range. More bins (--bins 300, bins=300) tell more."
            )
    return found


def _net(values: npt.NDArray[Any], labels: npt.ArrayLike, classes: Sequence[object] | None) -> Net:
    p_NC = check_probabilities(both_classes(values)).astype(np.float64)
    if classes is not None and len(classes) != p_NC.shape[1]:
        raise ConfigError(f"classes has {len(classes)} names for {p_NC.shape[1]} columns; give one for each, in order")
    named = labels if classes is None else indices(labels, list(classes))
    labels_N = check_labels(named, *p_NC.shape)
    if values.ndim == 1:
        return Net(RowScores.of_positive(p_NC[:, 1], labels_N == 1))
    return Net(RowScores.of_probabilities(p_NC, labels_N), p_NC, labels_N)


def _figures(name: str, nets: Sequence[Net], bins: int) -> ComparedModel:
    of_nets = [_of_net(net, bins) for net in nets]
    return ComparedModel(name=name, **{key: float(np.mean([one[key] for one in of_nets])) for key in of_nets[0]})


def _of_net(net: Net, bins: int) -> dict[str, float]:
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
