"""The table of a study: one row for each run and calibrator, measured from stored logits and then stored as well.

Rows that differ only in their seed form a setting. Runs with a shift have a second table, by severity.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from filelock import FileLock

from pipeline.config import Evaluation
from pipeline.studies import format as study_format
from pipeline.studies.format import CALIBRATOR, SECONDS, TEMPERATURE, VALIDATION, Study, columns
from pipeline.studies.runs import SHIFT, Place
from pipeline.training.plan import fingerprint
from pipeline.training.provenance import code_hashes
from trueodds import calibrators
from trueodds.calibrators import Calibrator, FitError, Temperature
from trueodds.errors import MissingExtraError
from trueodds.evaluation import shifted_logits
from trueodds.evaluation.entries import name_and_options
from trueodds.evaluation.measurement import measure
from trueodds.evaluation.shift import FIGURES, ShiftMeasurement, by_severity, figures
from trueodds.evaluation.shifted_logits import ShiftedLogits
from trueodds.files import atomic_write, read_json, write_json
from trueodds.inputs.table import write as write_csv
from trueodds.logits import Logits
from trueodds.processes import extensions
from trueodds.processes.progress import bar

MEASURED, SHIFT_MEASURED = "measured.json", "shifted.json"
"""Files in a run's folder that store its measured rows."""
SEED = "seed"
PROBLEM = "problem"
KEY = "run"
DEVICE = "device"
"""Column with the hardware that trained a run. Seconds are compared only between runs on the same device."""
SEVERITY = "severity"
ERROR = "standard_error"
"""Suffix for the standard error of a mean over corruptions: <figure>_standard_error."""
PLUG_IN = re.compile(r"(^|_)(ece|sece|mce|ks_error|reliability)(_|$)")
"""Columns with calibration errors that are plug-in estimates, computed from the frequencies of the same rows."""
Row = Mapping[str, Any]
"""One row of `rows_of` or `shifted_rows_of`, by column."""
Lines = dict[str, dict[int, list[Row]]]
"""Rows by name of setting and calibrator, then by severity."""


@dataclass(frozen=True)
class Setting:
    """Rows that differ only in their seed."""

    name: str
    rows: tuple[Row, ...]

    def mean(self, column: str) -> float | None:
        """Return a column's mean over the seeds; None if a seed has no value."""
        values = [row[column] for row in self.rows if row.get(column) is not None]
        return fmean(values) if len(values) == len(self.rows) else None


def rows_of(places: Sequence[Place], entries: Sequence[str]) -> list[dict[str, Any]]:
    """Return a row for each finished run and calibrator, in the order of the runs."""
    done = [place for place in places if place.is_done]
    code = _code_in_use("trueodds.evaluation.measurement", "trueodds.calibrators")
    table = []
    with bar(len(done) * len(entries), "measure", "row") as shown:
        for place in done:
            record = place.record()
            device = (record["work"] or {}).get(DEVICE)
            for entry, values in _measure_or_read(place, MEASURED, entries, code, _measure_rows).items():
                beside = {CALIBRATOR: entry, SECONDS: record[SECONDS], DEVICE: device, KEY: place.key}
                table.append({**place.run.axis_leaves, **place.run.tuned_leaves, **beside, **values})
                shown.update()
    return table


def shifted_rows_of(places: Sequence[Place], entries: Sequence[str]) -> list[dict[str, Any]]:
    """Return a row for each finished run with a shift, calibrator and severity. Severity 0 means no corruption."""
    shifted = [place for place in places if place.is_done and (place.folder / SHIFT).is_dir()]
    code = _code_in_use("trueodds.evaluation.shift", "trueodds.calibrators")
    table = []
    with bar(len(shifted) * len(entries), "shift", "row") as shown:
        for place in shifted:
            for entry, rows in _measure_or_read(place, SHIFT_MEASURED, entries, code, _measure_shift).items():
                beside = {**place.run.axis_leaves, **place.run.tuned_leaves, CALIBRATOR: entry, KEY: place.key}
                table += [{**beside, **row} for row in rows]
                shown.update()
    return table


def settings_of(study: Study, table: Sequence[Row]) -> list[Setting]:
    """Group the rows of a table by setting, in the order of each setting's first row."""
    groups: dict[str, list[Row]] = {}
    leaves = leaves_of(study)
    for row in table:
        key = json.dumps([[leaf, row.get(leaf)] for leaf in leaves] + [row[CALIBRATOR]], default=str)
        groups.setdefault(key, []).append(row)
    return [Setting(name_of(rows[0], leaves), tuple(rows)) for rows in groups.values()]


def leaves_of(study: Study) -> list[str]:
    """List the parameters in which the settings of a study differ, without the seed."""
    leaves = [*(leaf for axis in study.axes for leaf in axis), *(leaf for run in study.runs for leaf in run)]
    return [leaf for leaf in dict.fromkeys(leaves) if leaf != SEED]


def name_of(row: Row, leaves: Sequence[str]) -> str:
    """Return the name of a setting, such as `method=ce net=resnet8`."""
    return " ".join(f"{leaf}={row[leaf]}" for leaf in leaves if row.get(leaf) is not None) or "the single setting"


def shift_lines(study: Study, table: Sequence[Row], spec: study_format.Shift) -> Lines:
    """Group the rows that a shift figure draws. Each severity has one row per seed."""
    leaves = leaves_of(study)
    lines: Lines = {}
    for row in table:
        if row.get(PROBLEM) or row[CALIBRATOR] not in (spec.calibrators or study.calibrators):
            continue
        if all({**study.hold, **row}.get(leaf) == value for leaf, value in spec.where.items()):
            setting = " ".join(str(row[leaf]) for leaf in leaves if row.get(leaf) is not None)
            name = f"{setting}, {row[CALIBRATOR]}".removeprefix(", ")
            lines.setdefault(name, {}).setdefault(row[SEVERITY], []).append(row)
    return lines


def mean_and_error(rows: Sequence[Row], column: str) -> tuple[float, float | None]:
    """Return a shift column's mean over seeds and its standard error.

    For one seed this is the mean over corruptions. Its standard error leaves out the differences between corruptions
    that are the same at every severity.
    """
    values = [row[column] for row in rows]
    if len(values) > 1:
        return fmean(values), float(np.std(values, ddof=1)) / len(values) ** 0.5
    return values[0], rows[0][f"{column}_{ERROR}"]


def is_plug_in(column: str) -> bool:
    """Return whether a column is a calibration error, for whose differences no test here is valid.

    E[plug-in ECE] = ECE + a bias of about sqrt(2 / (pi N)) sum_b sqrt(w_b c_b (1 - c_b)) near calibration, where w_b is
    the share and c_b the confidence of bin b. Two calibrated models of different sharpness differ by their biases. More
    resamples or seeds do not remove this difference.
    """
    return PLUG_IN.search(column) is not None


def write(folder: Path, table: Sequence[Row]) -> list[Path]:
    """Write study.csv, and study.parquet if pyarrow is installed."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "study.csv"
    write_csv(path, _names(table), table)
    try:
        return [path, _parquet(folder / "study.parquet", table, _names(table))]
    except MissingExtraError:
        return [path]


def write_shift(folder: Path, table: Sequence[Row]) -> list[Path]:
    """Write shift.csv if any run has a shift."""
    if not table:
        return []
    path = folder / "shift.csv"
    write_csv(path, _names(table), table)
    return [path]


def fit_calibrator(val: Logits, entry: str) -> Calibrator:
    """Fit a calibrator, given as an entry of `calibrators`, to validation rows.

    Raises:
        FitError: The rows do not determine the calibrator.
    """
    name, options = name_and_options(entry)
    groups = val.groups_N if calibrators.get(name).uses_groups else None
    return calibrators.fit(val.logits_NC, val.labels_N, name, groups=groups, **options)


def _code_in_use(*modules: str) -> str:
    """Return a short hash of the code of these modules, of all that they import, and of registered calibrators."""
    return fingerprint(code_hashes(modules) | extensions.hashes("calibrators"))[:16]


def _measure_or_read(
    place: Place,
    name: str,
    entries: Sequence[str],
    code: str,
    measurement: Callable[[Place, Sequence[str]], Iterator[Any]],
) -> dict[str, Any]:
    """Return the rows of the entries: measured, or read from the file `name` if the same code measured them before."""
    path, judging = place.folder / name, place.run.params.evaluation
    keys = {entry: f"{entry} bins={judging.bins} level={judging.level} {code}" for entry in entries}
    with FileLock(place.folder.with_suffix(f".{path.stem}.lock")):  # two workers may end one study together
        kept: dict[str, Any] = read_json(path) if path.is_file() else {}
        new = [entry for entry in entries if keys[entry] not in kept]
        for entry, values in zip(new, measurement(place, new), strict=True):
            kept[keys[entry]] = values
            write_json(path, kept)
    return {entry: kept[keys[entry]] for entry in entries}


def _measure_rows(place: Place, entries: Sequence[str]) -> Iterator[Row]:
    """Yield the measured row of each entry."""
    if not entries:
        return
    val, test = place.logits()
    parts, evaluation = {"": test, VALIDATION: val}, place.run.params.evaluation
    for entry in entries:
        try:
            calibrator = fit_calibrator(val, entry)
        except FitError as error:
            yield {PROBLEM: str(error)}
            continue
        own = {TEMPERATURE: calibrator.temperature} if isinstance(calibrator, Temperature) else {}
        yield own | {
            f"{prefix}{column}": None if math.isnan(value) else value
            for prefix, part in parts.items()
            for column, value in _metrics_of(calibrator, part, evaluation).items()
        }


def _metrics_of(calibrator: Calibrator, part: Logits, judging: Evaluation) -> dict[str, float]:
    """Return the metrics of some rows."""
    return measure(calibrator, part.logits_NC, part.labels_N, judging, groups_N=part.groups_N).values


def _measure_shift(place: Place, entries: Sequence[str]) -> Iterator[list[Row]]:
    """Yield the rows by severity of each entry."""
    if not entries:
        return
    val, _ = place.logits()
    shifted = shifted_logits.read(place.folder / SHIFT)
    for entry in entries:
        try:
            calibrator = fit_calibrator(val, entry)
        except FitError as error:
            yield [{SEVERITY: 0, PROBLEM: str(error)}]
        else:
            yield _by_severity(entry, calibrator, shifted, place.run.params.evaluation)


def _by_severity(entry: str, calibrator: Calibrator, logits: ShiftedLogits, judging: Evaluation) -> list[Row]:
    """Return one row per severity for one calibrator."""
    how = logits.clean.labels_N, judging.bins, logits.clean.groups_N
    clean = figures(calibrator, logits.clean.logits_NC, *how)
    by_corruption = [[figures(calibrator, of, *how) for of in logits_SNC] for _, logits_SNC in logits]
    measured = ShiftMeasurement(entry, "compared", clean, np.moveaxis(np.array(by_corruption), -1, 0))
    table = by_severity(measured, logits.severities, judging.level)
    rows: list[dict[str, Any]] = [{SEVERITY: severity} for severity in table.pop(SEVERITY)]
    for figure in FIGURES:
        for k, row in enumerate(rows):
            row[figure] = table[figure]["mean"][k]
            row[f"{figure}_{ERROR}"] = table[figure][ERROR][k]
    return list(rows)


def _names(table: Sequence[Row]) -> list[str]:
    """List the columns of a table."""
    return list(dict.fromkeys(name for row in table for name in row))


def _parquet(path: Path, table: Sequence[Row], names: Sequence[str]) -> Path:
    """Write a table as Parquet and return its path."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise MissingExtraError("a study's Parquet file", "pyarrow", "table") from None
    numbers = {*columns(), *(f"{VALIDATION}{name}" for name in columns()), SECONDS}
    arrays = {name: [row.get(name) if name in numbers else _text(row.get(name)) for row in table] for name in names}
    with atomic_write(path) as aside:
        parquet.write_table(pyarrow.table(arrays), aside)
    return path


def _text(value: Any) -> str | None:
    """Return a value as text. An axis may mix types, but a column of Parquet has one."""
    return None if value is None else str(value)
