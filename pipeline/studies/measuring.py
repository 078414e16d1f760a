"""The table of a study: a row for each run and calibrator, measured from the kept logits in seconds, and kept too."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.studies.format import CALIBRATOR, SECONDS, TEMPERATURE, VALIDATION, columns
from pipeline.studies.running import LOGITS, Place
from pipeline.training.plan import fingerprint
from pipeline.training.provenance import code_hashes
from trueodds import calibrators, logits
from trueodds.calibrators import FitError, Temperature
from trueodds.errors import MissingExtraError
from trueodds.evaluation.entries import name_and_options
from trueodds.evaluation.measurement import measure
from trueodds.files import read_json, write_json, written
from trueodds.inputs.table import write as write_csv
from trueodds.processes.progress import bar

MEASURED = "measured.json"
PROBLEM = "problem"
KEY = "run"
DEVICE = "device"
"""The hardware that a run was trained on; its seconds compare with those of the same device alone."""
Row = dict[str, Any]


@dataclass(frozen=True)
class Judging:
    """How test rows are judged."""

    bins: int
    level: float
    compare: Sequence[str] = ()


def rows_of(places: Sequence[Place], entries: Sequence[str]) -> list[Row]:
    """Of the runs that are done, with each calibrator; in the order of the runs."""
    done = [place for place in places if place.is_done]
    code = code_in_use("trueodds.evaluation.measurement", "trueodds.calibrators")
    table = []
    with bar(len(done) * len(entries), "measure", "row") as shown:
        for place in done:
            record = place.record()
            device = (record["work"] or {}).get(DEVICE)
            for entry, values in _measured(place, entries, code).items():
                beside = {CALIBRATOR: entry, SECONDS: record[SECONDS], DEVICE: device, KEY: place.key}
                table.append({**place.run.varied, **place.run.tuned, **beside, **values})
                shown.update()
    return table


def code_in_use(*modules: str) -> str:
    """A short hash of these modules' code and of all that they import."""
    return fingerprint(code_hashes(modules))[:16]


def _measured(place: Place, entries: Sequence[str], code: str) -> dict[str, Row]:
    """By the entries, as measured now or earlier by the same code."""
    evaluation = place.run.params.evaluation
    judging = Judging(evaluation.bins, evaluation.level)
    path = place.folder / MEASURED
    kept: dict[str, Row] = read_json(path) if path.is_file() else {}
    keys = {entry: f"{entry} bins={judging.bins} level={judging.level} {code}" for entry in entries}
    if new := [entry for entry in entries if keys[entry] not in kept]:
        val, test = (logits.read(place.folder / LOGITS, split) for split in ("val", "test"))
        for entry in new:
            kept[keys[entry]] = _values(entry, val, test, judging)
        write_json(path, kept)
    return {entry: kept[keys[entry]] for entry in entries}


def _values(entry: str, val: logits.Logits, test: logits.Logits, judging: Judging) -> Row:
    name, options = name_and_options(entry)
    try:
        calibrator = calibrators.fit(val.logits_NC, val.labels_N, name, **options)
    except FitError as error:
        return {PROBLEM: str(error)}
    found = {TEMPERATURE: calibrator.temperature} if isinstance(calibrator, Temperature) else {}
    parts = {"": test, VALIDATION: val}
    return found | {
        f"{prefix}{column}": None if math.isnan(value) else value
        for prefix, part in parts.items()
        for column, value in measure(calibrator, part.logits_NC, part.labels_N, judging).values.items()
    }


def write(folder: Path, table: Sequence[Mapping[str, Any]]) -> list[Path]:
    """study.csv, and study.parquet where pyarrow is installed."""
    folder.mkdir(parents=True, exist_ok=True)
    names = list(dict.fromkeys(name for row in table for name in row))
    path = folder / "study.csv"
    write_csv(path, names, table)
    try:
        return [path, _parquet(folder / "study.parquet", table, names)]
    except MissingExtraError:
        return [path]


def _parquet(path: Path, table: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Path:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise MissingExtraError("a study's Parquet file", "pyarrow", "table") from None
    numbers = {*columns(), *(f"{VALIDATION}{name}" for name in columns()), SECONDS}
    arrays = {name: [row.get(name) if name in numbers else _text(row.get(name)) for row in table] for name in names}
    with written(path) as aside:
        parquet.write_table(pyarrow.table(arrays), aside)
    return path


def _text(value: Any) -> str | None:
    """Axes hold values of any kind: a column of a table has one."""
    return None if value is None else str(value)
