"""What corruption does to a study's runs, by severity; measured once and kept, as the rest is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from pipeline.studies import choice
from pipeline.studies.figure import Shift
from pipeline.studies.format import CALIBRATOR, Study
from pipeline.studies.measuring import KEY, PROBLEM, Judging, Row, code_in_use
from pipeline.studies.printing import scale_of
from pipeline.studies.running import LOGITS, SHIFT, Place
from trueodds import calibrators, logits
from trueodds.calibrators import FitError
from trueodds.evaluation import shifted_logits
from trueodds.evaluation.entries import name_and_options
from trueodds.evaluation.shift import FIGURES, ShiftMeasurement, by_severity, figures
from trueodds.evaluation.shifted_logits import ShiftedLogits
from trueodds.files import read_json, write_json
from trueodds.inputs.table import write as write_csv
from trueodds.processes.progress import bar

MEASURED = "shifted.json"
SEVERITY = "severity"
Lines = dict[str, dict[int, list[choice.Row]]]
ERROR = "standard_error"
"""Of a mean over corruptions; <figure>_standard_error."""


def rows_of(places: Sequence[Place], entries: Sequence[str]) -> list[Row]:
    """Of the runs that have a shift, with each calibrator a row for each severity, 0: the rows as they are."""
    shifted = [place for place in places if place.is_done and (place.folder / SHIFT).is_dir()]
    code = code_in_use("trueodds.evaluation.shift", "trueodds.calibrators")
    table = []
    with bar(len(shifted) * len(entries), "shift", "row") as shown:
        for place in shifted:
            for entry in entries:
                beside = {**place.run.varied, **place.run.tuned, CALIBRATOR: entry, KEY: place.key}
                table += [{**beside, **row} for row in _measured(place, entry, code)]
                shown.update()
    return table


def write(folder: Path, table: Sequence[choice.Row]) -> list[Path]:
    """shift.csv, unless no run has a shift."""
    if not table:
        return []
    path = folder / "shift.csv"
    write_csv(path, list(dict.fromkeys(name for row in table for name in row)), table)
    return [path]


def of_figure(study: Study, table: Sequence[choice.Row], spec: Shift) -> Lines:
    """By the names of settings and calibrators, and by severity: the rows that a figure draws, one for each seed."""
    leaves = choice.leaves_of(study)
    found: Lines = {}
    for row in table:
        if row.get(PROBLEM) or row[CALIBRATOR] not in (spec.calibrators or study.calibrators):
            continue
        if all({**study.hold, **row}.get(leaf) == value for leaf, value in spec.where.items()):
            setting = " ".join(str(row[leaf]) for leaf in leaves if row.get(leaf) is not None)
            name = f"{setting}, {row[CALIBRATOR]}".removeprefix(", ")
            found.setdefault(name, {}).setdefault(row[SEVERITY], []).append(row)
    return found


def mean_and_error(rows: Sequence[choice.Row], column: str) -> tuple[float, float | None]:
    """Of one seed: the mean over corruptions, and its standard error without what these differ by at every severity; of
    several: the mean of theirs, and its standard error over seeds.
    """
    values = [row[column] for row in rows]
    if len(values) > 1:
        return fmean(values), float(np.std(values, ddof=1)) / len(values) ** 0.5
    return values[0], rows[0][f"{column}_{ERROR}"]


def cells(study: Study, table: Sequence[choice.Row], spec: Shift) -> list[list[str]]:
    """What a figure draws as a table, plus and minus one standard error; nothing where no run has a shift."""
    lines = of_figure(study, table, spec)
    severities = sorted({severity for of in lines.values() for severity in of})
    if not lines:
        return []
    scale, digits = scale_of(spec.y)

    def cell(rows: Sequence[choice.Row]) -> str:
        mean, error = mean_and_error(rows, spec.y)
        return f"{scale * mean:.{digits}f}" + ("" if error is None else f" ± {scale * error:.{digits}f}")

    head = [f"{spec.y} under shift", *(f"severity {severity}" if severity else "clean" for severity in severities)]
    return [head, *([name, *(cell(of[severity]) for severity in severities)] for name, of in lines.items())]


def _measured(place: Place, entry: str, code: str) -> list[Row]:
    """As measured now, or earlier by the same code."""
    evaluation = place.run.params.evaluation
    judging = Judging(evaluation.bins, evaluation.level)
    path = place.folder / MEASURED
    kept: dict[str, list[Row]] = read_json(path) if path.is_file() else {}
    key = f"{entry} bins={judging.bins} level={judging.level} {code}"
    if key not in kept:
        val = logits.read(place.folder / LOGITS, "val")
        kept[key] = _values(entry, val, shifted_logits.read(place.folder / SHIFT), judging)
        write_json(path, kept)
    return kept[key]


def _values(entry: str, val: logits.Logits, shifted: ShiftedLogits, judging: Judging) -> list[Row]:
    name, options = name_and_options(entry)
    try:
        calibrator = calibrators.fit(val.logits_NC, val.labels_N, name, **options)
    except FitError as error:
        return [{SEVERITY: 0, PROBLEM: str(error)}]
    labels_N, bins = shifted.clean.labels_N, judging.bins
    clean = figures(calibrator, shifted.clean.logits_NC, labels_N, bins)
    by_corruption = [[figures(calibrator, of, labels_N, bins) for of in logits_SNC] for _, logits_SNC in shifted]
    measured = ShiftMeasurement(entry, "compared", clean, np.moveaxis(np.array(by_corruption), -1, 0))
    table = by_severity(measured, shifted.severities, judging.level)
    rows: list[dict[str, Any]] = [{SEVERITY: severity} for severity in table.pop(SEVERITY)]
    for figure in FIGURES:
        for k, row in enumerate(rows):
            row[figure] = table[figure]["mean"][k]
            row[f"{figure}_{ERROR}"] = table[figure][ERROR][k]
    return rows
