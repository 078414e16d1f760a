"""Evaluation of a model on test rows with several calibrators: every number with its uncertainty."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy.typing as npt
import scipy

from trueodds import calibrators
from trueodds.calibrators import Calibrator, FitError, Identity
from trueodds.evaluation.entries import ALL, check_entries, name_and_options
from trueodds.evaluation.measurement import EvaluationSettings, FailedFit, Measurement, measure, panel_values
from trueodds.files import write_json
from trueodds.inputs.table import write as write_csv
from trueodds.logits import Logits
from trueodds.metrics.significance.power import detectable
from trueodds.sums.positive import PositiveClass


@dataclass(frozen=True)
class Results:
    """Test rows evaluated without a calibrator, with the fitted one, and with others."""

    before: Measurement
    after: Measurement
    others: list[Measurement | FailedFit]
    calibrator: Calibrator
    settings: EvaluationSettings
    panel: dict[str, float] | None = None
    """Part of the error that the votes of people alone explain, if votes are known (`panel_values`)."""

    @property
    def table(self) -> dict[str, Any]:
        """Content of metrics.json."""
        table = table_of(self.before, self.after, self.others, self.calibrator, self.settings)
        return table if self.panel is None else {**table, "label_counts": self.panel}

    def write(self, folder: Path, notes: Iterable[str] = ()) -> None:
        """Write metrics.json, with `notes` before its own, and calibrators.csv into `folder`."""
        folder.mkdir(parents=True, exist_ok=True)
        table = self.table
        write_json(folder / "metrics.json", {**table, "notes": [*notes, *table["notes"]]})
        names = ["calibrator", "role", *self.before.values, "problem"]
        write_csv(folder / "calibrators.csv", names, rows_of(self.before, self.after, self.others))


def evaluate(
    calibrator: Calibrator,
    validation: Logits,
    test: Logits,
    settings: EvaluationSettings,
    positive: PositiveClass | None = None,
    counts_NC: npt.ArrayLike | None = None,
) -> Results:
    """Evaluate the test rows without and with `calibrator`, and with others that are fitted on the validation rows.

    Args:
        calibrator: The fitted calibrator.
        validation: Logits and labels of the validation rows.
        test: Logits and labels of the test rows.
        settings: Settings of the evaluation.
        positive: The positive class, if there is one.
        counts_NC: Number of people who chose each class for each test row; None: unknown.

    Raises:
        ConfigError: An entry of `settings.compare` is invalid.
    """
    others = measure_others(calibrator, validation, test, settings, positive, counts_NC)
    before = measure(Identity(), test.logits_NC, test.labels_N, settings, positive, counts_NC)
    after = measure(calibrator, test.logits_NC, test.labels_N, settings, positive, counts_NC, test.groups_N)
    panel = None if counts_NC is None else panel_values(counts_NC)
    return Results(before, after, others, calibrator, settings, panel)


def measure_others(
    after: Calibrator,
    validation: Logits,
    test: Logits,
    settings: EvaluationSettings,
    positive: PositiveClass | None = None,
    counts_NC: npt.ArrayLike | None = None,
) -> list[Measurement | FailedFit]:
    """Evaluate each calibrator of `settings.compare`, fitted on the validation rows, on the test rows.

    Identity, which is "before", and a calibrator that equals `after` are left out.

    Raises:
        ConfigError: An entry of `settings.compare` is invalid.
    """
    judged: list[Measurement | FailedFit] = []
    for entry, calibrator in fit_others(after, validation, settings.compare):
        if isinstance(calibrator, FitError):
            judged.append(FailedFit(entry, str(calibrator)))
        else:
            how = settings, positive, counts_NC, test.groups_N
            measured = measure(calibrator, test.logits_NC, test.labels_N, *how)
            judged.append(replace(measured, name=entry))
    return judged


def fit_others(
    after: Calibrator, validation: Logits, entries: Sequence[str]
) -> Iterator[tuple[str, Calibrator | FitError]]:
    """Yield each entry of `compare` with its calibrator, or with the reason why these rows do not determine it.

    Identity and a calibrator that equals `after` are left out.

    Raises:
        ConfigError: An entry is invalid.
    """
    check_entries(entries)
    groups_N = validation.groups_N
    every = calibrators.names(has_groups=groups_N is not None) if ALL in entries else []
    for entry in dict.fromkeys([*every, *(" ".join(entry.split()) for entry in entries if entry != ALL)]):
        name, options = name_and_options(entry)
        try:
            groups = groups_N if calibrators.get(name).uses_groups else None
            calibrator = calibrators.fit(validation.logits_NC, validation.labels_N, name, groups=groups, **options)
        except FitError as error:
            yield entry, error
            continue
        if calibrator not in (Identity(), after):
            yield entry, calibrator


def table_of(
    before: Measurement,
    after: Measurement,
    others: Iterable[Measurement | FailedFit],
    calibrator: Calibrator,
    settings: EvaluationSettings,
) -> dict[str, Any]:
    """Return the content of metrics.json, without what is known of the votes of people."""
    was, now, n = before.values, after.values, after.sums.n
    notes = [*calibrator.warnings, *_difference(was, now, n, settings.level)]
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


def _difference(was: dict[str, float], now: dict[str, float], n: int, level: float) -> list[str]:
    """Return sentences on the difference that a calibrator makes.

    No test is valid for the difference of two plug-in ECEs, because chance raises each by a different amount. The NLL
    is a mean over rows, so its paired difference has an interval if `was` is without a calibrator (PHI is relative to
    that).
    """
    if was["ece"] == now["ece"] and was["nll"] == now["nll"]:
        return []
    notes = ["The difference between the two ECEs is no evidence: chance raises each by a different amount."]
    if was["phi_nll"] == 0:
        gain, lower, upper = now["phi_nll"], now["phi_nll_lower"], now["phi_nll_upper"]
        verb, ends = ("falls", (lower, upper)) if gain >= 0 else ("rises", (-upper, -lower))
        notes.append(f"The NLL {verb} by {abs(gain):.4f} ({level:.0%} interval {ends[0]:.4f} .. {ends[1]:.4f}).")
        if lower <= 0 <= upper and math.isfinite(upper):
            error = (upper - lower) / 2 / scipy.special.stdtrit(n - 1, (1 + level) / 2)
            seen = f"A change of {detectable(error, n - 1, 1 - level):.4f} would have been seen in 80% of such samples."
            notes.append(f"These rows do not show that calibration changes it. {seen}")
    return notes


def rows_of(before: Measurement, after: Measurement, others: Iterable[Measurement | FailedFit]) -> list[dict[str, Any]]:
    """Return the rows of calibrators.csv, one per calibrator, with one column per metric: fractions, nats or counts."""
    roles = [("before", before), ("after", after), *(("compared", other) for other in others)]
    empty = {**dict.fromkeys(before.values), "problem": None}
    return [{"calibrator": one.name, "role": role, **empty, **_plain(one)} for role, one in roles]


def _entry(one: Measurement | FailedFit) -> dict[str, Any]:
    """Return the entry of one calibrator in metrics.json."""
    if isinstance(one, FailedFit):
        return _plain(one)
    positive = {} if one.positive is None else {"positive": one.positive}
    return {**_plain(one), "classwise_ece_by_class": one.ece_C.tolist(), **positive}


def _plain(one: Measurement | FailedFit) -> dict[str, Any]:
    """Return the values without NaN, which JSON does not have."""
    if isinstance(one, FailedFit):
        return {"problem": one.reason}
    return {name: None if math.isnan(value) else value for name, value in one.values.items()}
