"""A model judged on test rows: every number with its uncertainty, for each of several calibrators."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy.typing as npt

from trueodds import calibrators, metrics
from trueodds.calibrators import Calibrator, FitError, Identity
from trueodds.evaluation.entries import ALL, check_compared, name_and_options
from trueodds.files import write_json
from trueodds.logits import Logits
from trueodds.metrics import CalibrationSums
from trueodds.metrics.intervals.classwise import ClassCells, interval_of_cells
from trueodds.sums.inputs import Array
from trueodds.sums.positive import PositiveClass

OF_THE_TOP_LABEL = ("accuracy", "error_rate", "mean_confidence")
"""What a summary of sums says under names that are not those of p(positive)."""


class Settings(Protocol):
    """How test rows are judged."""

    @property
    def bins(self) -> int:
        """Equal-width confidence bins; a divisor of 3,000."""

    @property
    def level(self) -> float:
        """Nominal coverage of the intervals."""

    @property
    def compare(self) -> Sequence[str]:
        """Further calibrators, fitted on the validation rows and measured on the test rows, with options of their fit
        where they follow the name (`temperature objective=ece`); `all`: every one."""


@dataclass(frozen=True)
class Measurement:
    """The figures of one calibrator's probabilities of the test rows: all that tables and pictures need."""

    name: str
    sums: CalibrationSums
    values: dict[str, float]
    """By the names of `trueodds.metrics`. Calibration errors are fractions: .0123 is 1.23%. NaN: not defined."""
    ece_C: Array
    """Per class, equal width."""
    floor_C: Array
    """The mean of `ece_C` if the probabilities were right."""
    positive: dict[str, Any] | None = None
    """`positive_values`, where there is a positive class."""


@dataclass(frozen=True)
class Problem:
    """A calibrator that these validation rows do not determine, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class Results:
    """The test rows judged with no calibrator, with the fitted one, and with others beside it."""

    before: Measurement
    after: Measurement
    others: list[Measurement | Problem]
    calibrator: Calibrator
    settings: Settings

    def write(self, folder: Path, notes: Iterable[str] = ()) -> None:
        """Writes metrics.json, with `notes` before its own, and calibrators.csv into `folder`."""
        folder.mkdir(parents=True, exist_ok=True)
        table = table_of(self.before, self.after, self.others, self.calibrator, self.settings)
        write_json(folder / "metrics.json", {**table, "notes": [*notes, *table["notes"]]})
        with (folder / "calibrators.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, ["calibrator", "role", *self.before.values, "problem"])
            writer.writeheader()
            writer.writerows(rows_of(self.before, self.after, self.others))


def evaluate(
    calibrator: Calibrator,
    validation: Logits,
    test: Logits,
    settings: Settings,
    positive: PositiveClass | None = None,
) -> Results:
    """The test rows before and after `calibrator`; the others are fitted on the validation rows.

    Raises:
        ConfigError: as `check_compared`.
    """
    rows = test.logits_NC, test.labels_N
    before, after = (measure(each, *rows, settings, positive) for each in (Identity(), calibrator))
    others = compared(calibrator, validation, test, settings, positive)
    return Results(before, after, others, calibrator, settings)


def measure(
    calibrator: Calibrator,
    logits_NC: npt.ArrayLike,
    labels_N: npt.ArrayLike,
    settings: Settings,
    positive: PositiveClass | None = None,
) -> Measurement:
    """All metrics of one calibrator: .4 s for 10,000 x 100, 2 s for 10,000 x 1,000."""
    return measure_probabilities(calibrator.name, calibrator(logits_NC), labels_N, settings, positive)


def measure_probabilities(
    name: str, p_NC: Array, labels_N: npt.ArrayLike, settings: Settings, positive: PositiveClass | None = None
) -> Measurement:
    """As `measure`, of probabilities however they were made."""
    bins = settings.bins
    sums = CalibrationSums.from_probabilities(p_NC, labels_N)
    ece_C = metrics.ece_per_class(p_NC, labels_N, bins=bins)
    cells = ClassCells.of(p_NC, bins)
    sweep, above = metrics.sweep_ece(p_NC, labels_N), metrics.fraction_above(sums)
    brier = metrics.brier_decomposition(p_NC, labels_N, bins=bins)
    values = {
        **metrics.summary(sums, bins=bins, level=settings.level),
        "calibration_p_value": metrics.calibration_test(sums, bins=bins).p_value,
        "ece_l2": metrics.ece(sums, bins=bins, norm="l2"),
        "label_binned_ece": metrics.label_binned_ece(p_NC, labels_N, bins=bins),
        "adaptive_ece": metrics.adaptive_ece(p_NC, labels_N, bins=bins),
        "adaptive_ece_l2": metrics.adaptive_ece(p_NC, labels_N, bins=bins, norm="l2"),
        "debiased_ece": metrics.debiased_ece(p_NC, labels_N, bins=bins),
        "sweep_ece": sweep.ece,
        "sweep_bins": sweep.bins,
        "ks_error": metrics.ks_error(p_NC, labels_N),
        "smooth_ece": metrics.smooth_ece(sums),
        "kde_ece": metrics.kde_ece(sums),
        "sece": metrics.sece(sums),
        "classwise_ece": float(ece_C.mean()),
        "classwise_floor": float(cells.floor_C.mean()),
        "classwise_adaptive_ece": metrics.classwise_ece(p_NC, labels_N, bins=bins, binning="mass"),
        "top_brier": brier.brier,
        "top_brier_reliability": brier.reliability,
        "top_brier_resolution": brier.resolution,
        "top_brier_uncertainty": brier.uncertainty,
        "top_brier_within_bin_variance": brier.within_bin_variance,
        "top_brier_within_bin_covariance": brier.within_bin_covariance,
        "fraction_above_99": above.fraction,
        "accuracy_above_99": above.accuracy,
        "mean_entropy": metrics.mean_entropy(p_NC),
        **_uncertainty(sums, cells, p_NC, labels_N, settings),
    }
    of_positive = None if positive is None else positive_values(positive, p_NC, labels_N, settings)
    return Measurement(name, sums, values, ece_C, cells.floor_C, of_positive)


def _uncertainty(
    sums: CalibrationSums, cells: ClassCells, p_NC: Array, labels_N: npt.ArrayLike, settings: Settings
) -> dict[str, float]:
    """Limits of what the other values say, at `settings.level`, and what calibrated probabilities would show."""
    bins, level = settings.bins, settings.level
    (low,), (high,) = metrics.binomial_interval([sums.n - sums.total("correct")], [sums.n], level=level)
    limits = {
        "nll": metrics.score_interval(sums, level=level),
        "adaptive_ece": metrics.ece_interval(sums, bins=bins, level=level, binning="mass"),
        "classwise_ece": interval_of_cells(cells, p_NC, labels_N, level),
        "mce": metrics.mce_interval(sums, bins=bins, level=level),
    }
    adaptive, largest = metrics.noise_floor(sums, bins=bins, binning="mass"), metrics.mce_noise_floor(sums, bins=bins)
    return {
        "error_rate_lower": float(low),
        "error_rate_upper": float(high),
        **{f"{name}_{end}": getattr(one, end) for name, one in limits.items() for end in ("lower", "upper")},
        "adaptive_floor_mean": adaptive.mean,
        "adaptive_floor_p95": adaptive.p95,
        "classwise_floor_p95": cells.noise_floor.p95,
        "mce_floor_mean": largest.mean,
        "mce_floor_p95": largest.p95,
    }


def positive_values(
    positive: PositiveClass, p_NC: Array, labels_N: npt.ArrayLike, settings: Settings
) -> dict[str, Any]:
    """The positive class by its name, and the metrics of its probability over all of [0, 1].

    `prevalence`: the share of positive rows, which `mean_probability` should equal; `brier`: in [0, 1].
    """
    sums = positive.sums(p_NC, labels_N)
    values = metrics.summary(sums, bins=settings.bins, level=settings.level)
    ks = metrics.ks_test(sums)
    return {
        "class": positive.name,
        "prevalence": values["accuracy"],
        "mean_probability": values["mean_confidence"],
        **{name: value for name, value in values.items() if name not in OF_THE_TOP_LABEL},
        "calibration_p_value": metrics.calibration_test(sums, bins=settings.bins).p_value,
        "ks": ks.ks,
        "ks_p_value": ks.p_value,
        "smooth_ece": metrics.smooth_ece(sums),
    }


def compared(
    after: Calibrator,
    validation: Logits,
    test: Logits,
    settings: Settings,
    positive: PositiveClass | None = None,
) -> list[Measurement | Problem]:
    """Each calibrator of `settings.compare`, fitted on the validation rows and judged on the test rows.

    Left out: identity, which is "before", and one that comes out as `after` itself.

    Raises:
        ConfigError: as `check_compared`.
    """
    judged: list[Measurement | Problem] = []
    for entry, calibrator in fit_compared(after, validation, settings.compare):
        if isinstance(calibrator, FitError):
            judged.append(Problem(entry, str(calibrator)))
        else:
            measured = measure(calibrator, test.logits_NC, test.labels_N, settings, positive)
            judged.append(replace(measured, name=entry))
    return judged


def fit_compared(
    after: Calibrator, validation: Logits, entries: Sequence[str]
) -> Iterator[tuple[str, Calibrator | FitError]]:
    """Each of the entries of `compare` with its calibrator, or why these rows do not determine it.

    Left out: as in `compared`.

    Raises:
        ConfigError: as `check_compared`.
    """
    check_compared(entries)
    every = calibrators.names() if ALL in entries else []
    for entry in dict.fromkeys([*every, *(" ".join(entry.split()) for entry in entries if entry != ALL)]):
        name, options = name_and_options(entry)
        try:
            calibrator = calibrators.fit(validation.logits_NC, validation.labels_N, name, **options)
        except FitError as error:
            yield entry, error
            continue
        if calibrator not in (Identity(), after):
            yield entry, calibrator


def table_of(
    before: Measurement,
    after: Measurement,
    others: Iterable[Measurement | Problem],
    calibrator: Calibrator,
    settings: Settings,
) -> dict[str, Any]:
    """The content of metrics.json."""
    was, now, n = before.values, after.values, after.sums.n
    floor, notes = max(was["floor_p95"], now["floor_p95"]), calibrator.notes()
    if abs(was["ece"] - now["ece"]) < floor:
        notes.append(
            f"ECE before ({was['ece']:.4f}) and after ({now['ece']:.4f}) differ by less than the noise floor"
            f" ({floor:.4f}, 95th percentile, {n:,} rows): they cannot be told apart."
        )
    # Fitted matrices and curves belong in calibrator.json: a thousand classes have a million weights.
    fitted = {key: value for key, value in calibrator.to_json().items() if isinstance(value, str | int | float)}
    return {
        "n": n,
        "bins": settings.bins,
        "level": settings.level,
        "unit": "fraction",
        "calibrator": fitted,
        "before": _entry(before),
        "after": _entry(after),
        "compared": {other.name: _entry(other) for other in others},
        "notes": notes,
    }


def rows_of(before: Measurement, after: Measurement, others: Iterable[Measurement | Problem]) -> list[dict[str, Any]]:
    """calibrators.csv: one row a calibrator, one column a metric, all of them fractions, nats or counts."""
    roles = [("before", before), ("after", after), *(("compared", other) for other in others)]
    empty = {**dict.fromkeys(before.values), "problem": None}
    return [{"calibrator": one.name, "role": role, **empty, **_plain(one)} for role, one in roles]


def _entry(one: Measurement | Problem) -> dict[str, Any]:
    """What metrics.json says of one calibrator."""
    if isinstance(one, Problem):
        return _plain(one)
    positive = {} if one.positive is None else {"positive": one.positive}
    return {**_plain(one), "classwise_ece_by_class": one.ece_C.tolist(), **positive}


def _plain(one: Measurement | Problem) -> dict[str, Any]:
    """Without NaN, which JSON does not know."""
    if isinstance(one, Problem):
        return {"problem": one.reason}
    return {name: None if math.isnan(value) else value for name, value in one.values.items()}
