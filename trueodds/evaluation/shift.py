"""Evaluation on corrupted test rows: error, NLL and calibration errors by severity, for several calibrators."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trueodds import metrics
from trueodds.calibrators import Calibrator, FitError, Identity
from trueodds.evaluation.measurement import EvaluationSettings
from trueodds.evaluation.results import fit_others
from trueodds.evaluation.shifted_logits import ShiftedLogits
from trueodds.files import write_json
from trueodds.inputs.table import write as write_csv
from trueodds.logits import Logits
from trueodds.metrics import CalibrationSums
from trueodds.metrics.intervals.within_types import WithinTypes, within_types
from trueodds.sums.group_names import GroupNames
from trueodds.sums.inputs import Array

FIGURES = ("error_rate", "nll", "ece", "adaptive_ece", "adaptive_ece_l2")
"""Names as in metrics.json. The soft-calibration paper plots adaptive_ece_l2, which uses bins of equal mass."""


@dataclass(frozen=True)
class Role:
    """A calibrator with its name and role: before, after, or compared."""

    name: str
    role: str
    calibrator: Calibrator


@dataclass(frozen=True)
class ShiftMeasurement:
    """Metrics of one calibrator's probabilities, on the clean rows and under each corruption."""

    name: str
    role: str
    clean_F: Array
    values_FTS: Array
    """F metrics of FIGURES, T corruptions, S severities from 1 on. Errors are fractions, NLL is in nats."""

    def within(self, figure: str) -> WithinTypes:
        """Compute means over corruptions by severity, from 1 on, with the standard error within corruptions."""
        return within_types(self.values_FTS[FIGURES.index(figure)])

    def clean(self, figure: str) -> float:
        """Return the metric on the clean rows, severity 0."""
        return float(self.clean_F[FIGURES.index(figure)])


@dataclass(frozen=True)
class ShiftResults:
    """Results of all calibrators under one shift."""

    measurements: list[ShiftMeasurement]
    problems: dict[str, str]
    """Calibrators of `compare` that the validation rows do not determine, with the reason."""
    corruptions: tuple[str, ...]
    severities: tuple[int, ...]
    description: dict[str, Any]
    """Origin of the images (`trueodds.evaluation.shifted_logits`)."""
    settings: EvaluationSettings

    def write(self, folder: Path) -> None:
        """Write shift.json (means by severity, with limits) and shift.csv (each corruption) into `folder`."""
        folder.mkdir(parents=True, exist_ok=True)
        names = ["calibrator", "role", "corruption", "severity", *FIGURES]
        write_csv(folder / "shift.csv", names, (dict(zip(names, row, strict=True)) for row in self._rows()))
        level = self.settings.level
        tables = {one.name: {"role": one.role, **by_severity(one, self.severities, level)} for one in self.measurements}
        problems = {name: {"role": "compared", "problem": reason} for name, reason in self.problems.items()}
        head = {**self.description, "bins": self.settings.bins, "level": level, "unit": "fraction"}
        write_json(folder / "shift.json", {**head, "calibrators": tables | problems})

    def _rows(self) -> list[list[Any]]:
        rows: list[list[Any]] = []
        for one in self.measurements:
            rows.append([one.name, one.role, "", 0, *one.clean_F.tolist()])
            rows += [
                [one.name, one.role, corruption, severity, *one.values_FTS[:, t, s].tolist()]
                for t, corruption in enumerate(self.corruptions)
                for s, severity in enumerate(self.severities)
            ]
        return rows


def evaluate(
    calibrator: Calibrator, validation: Logits, logits: ShiftedLogits, settings: EvaluationSettings
) -> ShiftResults:
    """Evaluate the corrupted rows without `calibrator`, with it, and with each of `settings.compare`.

    All calibrators are fitted on clean rows.

    Raises:
        ConfigError: An entry of `settings.compare` is invalid.
        FileError: Logits are missing or damaged.
    """
    roles = [Role("identity", "before", Identity()), Role(calibrator.name, "after", calibrator)]
    problems: dict[str, str] = {}
    for entry, fitted in fit_others(calibrator, validation, settings.compare):
        if isinstance(fitted, FitError):
            problems[entry] = str(fitted)
        else:
            roles.append(Role(entry, "compared", fitted))
    how = logits.clean.labels_N, settings.bins, logits.clean.groups_N
    clean = [figures(one.calibrator, logits.clean.logits_NC, *how) for one in roles]
    values: list[list[list[Array]]] = [[] for _ in roles]
    for _, logits_SNC in logits:  # each corruption is read once, because its file has 20 MB
        for table, one in zip(values, roles, strict=True):
            table.append([figures(one.calibrator, logits_NC, *how) for logits_NC in logits_SNC])
    measurements = [
        ShiftMeasurement(one.name, one.role, of_clean, np.moveaxis(np.array(table), -1, 0))
        for one, of_clean, table in zip(roles, clean, values, strict=True)
    ]
    return ShiftResults(measurements, problems, logits.corruptions, logits.severities, logits.description, settings)


def by_severity(one: ShiftMeasurement, severities: Sequence[int], level: float) -> dict[str, Any]:
    """Return the means over corruptions of each metric and their uncertainty, as lists over severity 0, 1, ...

    The uncertainty is null at severity 0.
    """
    table: dict[str, Any] = {"severity": [0, *severities]}
    for figure in FIGURES:
        within, clean = one.within(figure), one.clean(figure)
        half, means = within.half_width(level), within.mean_S.tolist()
        error = None if math.isnan(half) else within.standard_error
        table[figure] = {
            "mean": [clean, *means],
            "standard_error": [None, *[error] * len(means)],
            "lower": [None, *(None if error is None else mean - half for mean in means)],
            "upper": [None, *(None if error is None else mean + half for mean in means)],
        }
    return table


def figures(
    calibrator: Calibrator,
    logits_NC: npt.ArrayLike,
    labels_N: npt.ArrayLike,
    bins: int,
    groups_N: GroupNames | None = None,
) -> Array:
    """Compute FIGURES of one set of rows. `groups_N` are the rows' groups, for a calibrator that has some."""
    p_NC = calibrator(logits_NC, groups=groups_N)
    sums = CalibrationSums.from_probabilities(p_NC, labels_N)
    return np.array(
        [
            metrics.error_rate(sums),
            sums.total("nll") / sums.n,
            metrics.ece(sums, bins=bins),
            metrics.adaptive_ece(p_NC, labels_N, bins=bins),
            metrics.adaptive_ece(p_NC, labels_N, bins=bins, norm="l2"),
        ]
    )
