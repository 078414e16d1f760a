"""The report of a study: text tables, sentences, files, and one HTML page that needs no network."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from filelock import FileLock
from jinja2 import Environment, StrictUndefined

from pipeline.studies import baseline_comparison, drawing, measuring, setting_choice
from pipeline.studies import format as study_format
from pipeline.studies.baseline_comparison import baseline_of
from pipeline.studies.format import CALIBRATOR, SECONDS, SPREADS, TEMPERATURE, VALIDATION, Study, published_keys
from pipeline.studies.measuring import PROBLEM, Row, Setting, leaves_of, settings_of
from pipeline.studies.running import StudyOutcome
from pipeline.studies.runs import UNCOMMITTED, Place
from pipeline.studies.setting_choice import ChosenSettings
from trueodds.drawing.picture import PALETTE
from trueodds.files import write_text
from trueodds.texts import plural

PAGE = "study.html"
TEMPLATE = Path(__file__).with_name("page.html")
PERCENT = 100.0
SQUARED = "squared_calibration_error"
FLOORS = {
    "ece": "floor_mean",
    "adaptive_ece": "adaptive_floor_mean",
    "mce": "mce_floor_mean",
    "classwise_ece": "classwise_floor",
}
"""Plug-in calibration errors, and the columns with their average for a calibrated model."""
SCORES = ("nll", "refinement_nll", "phi_", "brier", "mean_entropy", "sweep_bins", "calibration_p_value", TEMPERATURE)
"""Prefixes of columns that are not fractions."""


def report(study: Study, outcome: StudyOutcome, out: Path) -> str:
    """Write study.csv, study.parquet, the figures and study.html of the finished runs to the folder `out`.

    Returns:
        The report for a terminal. If no run is finished, nothing is written.
    """
    table = measuring.rows_of(outcome.places, study.calibrators)
    if not table:
        return f"{study.title}: no run is finished"
    under_shift = measuring.shifted_rows_of(outcome.places, study.calibrators)
    found = findings(study, outcome, table, under_shift)
    out.mkdir(parents=True, exist_ok=True)
    with FileLock(out / ".lock"):  # two workers may end the same study at the same time
        written = [*measuring.write(out, table), *measuring.write_shift(out, under_shift)]
        figures = drawing.draw(study, outcome.places, table, under_shift, out)
        written += [*figures, _write_page(out / PAGE, study, found, figures)]
    words = [
        *found["notes"],
        *([found["origins"]] if found["origins"] else []),
        found["summary"],
        *(f"  {line}" for line in found["comparisons"]),
        *found["choices"],
    ]
    words += [f"Differs from what was published: {difference}" for difference in study.differs]
    words += [f"written: {path}" for path in written]
    tables = [line for one in (found["cells"], *found["shift_tables"]) for line in ["", *markdown(one)]]
    return "\n".join([*tables, "", *filter(None, words)])


def findings(study: Study, outcome: StudyOutcome, table: Sequence[Row], under_shift: Sequence[Row]) -> dict[str, Any]:
    """Put the tables of `measuring.rows_of` and `measuring.shifted_rows_of` into words.

    Returns:
        The table `cells`, a table for each shift figure (`shift_tables`), remarks on the columns (`notes`), the number
        of significant differences (`summary`), sentences about differences from the baseline (`comparisons`), the
        choice by the study's rule (`choices`), a line for each choice of tuning, the messages of failed runs, the
        number of finished runs, and the origins of the runs (`made_with`, and as a sentence `origins`).
    """
    compared = baseline_comparison.compare(study, outcome.places)
    chosen = setting_choice.choose(study.choose, settings_of(study, table)) if study.choose else []
    origins = made_with(outcome.places)
    shifts = [shift_cells(study, under_shift, spec) for spec in study.figures if spec.kind == "shift"]
    return {
        "cells": cells(study, table),
        "shift_tables": [lines for lines in shifts if lines],
        "notes": [baseline_comparison.NOTE] if any(map(measuring.is_plug_in, study.report)) else [],
        "summary": baseline_comparison.summary(compared),
        "comparisons": [*(one.sentence() for one in compared), *baseline_comparison.times(study, table)],
        "choices": chosen_lines(study, chosen),
        "tuning": outcome.tuning,
        "failures": outcome.failures,
        "runs": plural(sum(place.is_done for place in outcome.places), "run"),
        "made_with": origins,
        "origins": origins_words(origins),
    }


def made_with(places: Sequence[Place]) -> list[dict[str, Any]]:
    """Return the origins of the finished runs: commit, whether source files differed from it, processor, and number.

    `other_code` says that the code of another version made them.
    """
    found: Counter[tuple[str | None, bool, str | None, bool]] = Counter()
    for place in places:
        if place.is_done:
            record = place.record()
            processor = (record.get("machine") or {}).get("processor")
            found[record.get("commit"), bool(record.get(UNCOMMITTED)), processor, place.other_code] += 1
    names = ("commit", UNCOMMITTED, "processor", "other_code")
    return [{**dict(zip(names, origin, strict=True)), "runs": count} for origin, count in found.items()]


def origins_words(of: Sequence[Mapping[str, Any]]) -> str:
    """Return the origins of `made_with` as a sentence; an empty one without finished runs."""
    if not of:
        return ""
    parts = []
    for one in of:
        words = f"{plural(one['runs'], 'run')} by commit {(one['commit'] or 'unknown')[:10]}"
        words += " with uncommitted changes" if one.get(UNCOMMITTED) else ""  # results from before have no entry
        words += f" on {one['processor']}" if one["processor"] else ""
        words += ", whose code differs from this version's (settings and data are equal)" if one["other_code"] else ""
        parts.append(words)
    return f"Made with: {'. '.join(parts)}."


def markdown(of: Sequence[Sequence[str]]) -> list[str]:
    """Return `cells` as a Markdown table."""
    head, *rest = of
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rest)]


def cells(study: Study, table: Sequence[Row]) -> list[list[str]]:
    """Return a header, and a row per setting with mean and standard deviation over seeds; for one seed, its interval.

    Fractions are in percent, the squared calibration error is in squared percentage points. A plug-in calibration error
    is followed by its noise floor. A published number is followed by our difference from it.
    """
    axes = leaves_of(study)
    printed = [[*axes, CALIBRATOR, "runs", *study.report]]
    settings = settings_of(study, table)
    for setting in settings:
        first = setting.rows[0]
        line = [str(first.get(leaf, "")) for leaf in axes] + [str(first[CALIBRATOR]), str(len(setting.rows))]
        printed.append(line + [_cell(column, setting.rows) for column in study.report])
        if theirs := published_row(study, first):
            differs = study.published is not None and study.published.of == "difference"
            off = baseline_of(study, setting, settings) if differs else None
            shown = [_beside(study, column, theirs, setting.rows, off) for column in study.report]
            printed.append(["" for _ in axes] + ["published", "", *shown])
    return printed


def chosen_lines(study: Study, choices: Sequence[ChosenSettings]) -> list[str]:
    """Return the settings that the rule chose, with their test results."""
    said = []
    for one in choices:
        said.append(f"Chosen: {one.words}.")
        for setting in one.settings:
            figures = ", ".join(f"{column} {_cell(column, setting.rows)}" for column in study.report)
            said.append(f"  {setting.name}: test rows, which the choice did not use: {figures}")
    return said


def shift_cells(study: Study, table: Sequence[Row], spec: study_format.Shift) -> list[list[str]]:
    """Return the lines of a shift figure as a table with standard errors; empty if no run has a shift."""
    lines = measuring.shift_lines(study, table, spec)
    severities = sorted({severity for of in lines.values() for severity in of})
    if not lines:
        return []
    scale, digits = scale_of(spec.y)

    def cell(rows: Sequence[Row]) -> str:
        mean, error = measuring.mean_and_error(rows, spec.y)
        return f"{scale * mean:.{digits}f}" + ("" if error is None else f" ± {scale * error:.{digits}f}")

    head = [f"{spec.y} under shift", *(f"severity {severity}" if severity else "clean" for severity in severities)]
    return [head, *([name, *(cell(of[severity]) for severity in severities)] for name, of in lines.items())]


def published_row(study: Study, row: Row) -> Row | None:
    """Return the published numbers for a row's setting, or None."""
    for published in study.published.rows if study.published else ():
        leaves = {key: value for key, value in published.items() if key not in published_keys(study)}
        if published.get(CALIBRATOR, study.calibrators[0]) == row[CALIBRATOR] and all(
            {**study.hold, **row}.get(leaf) == value for leaf, value in leaves.items()
        ):
            return published
    return None


def scale_of(column: str) -> tuple[float, int]:
    """Return the factor by which a column is multiplied, and its decimals. Scores are printed unscaled."""
    if column == SECONDS:
        return 1.0, 0
    if column.removeprefix(VALIDATION) == SQUARED:
        return PERCENT**2, 2
    return (1.0, 4) if column.startswith(SCORES) else (PERCENT, 2)


def _cell(column: str, rows: Sequence[Row]) -> str:
    """Return a measured value with its spread or interval, and its noise floor."""
    if problem := next((row[PROBLEM] for row in rows if row.get(PROBLEM)), None):
        return str(problem)
    values = [row[column] for row in rows if row.get(column) is not None]
    if not values:
        return "not defined"
    scale, digits = scale_of(column)
    words = f"{scale * fmean(values):.{digits}f}"
    low, high = (rows[0].get(f"{column}_{end}") for end in ("lower", "upper"))
    if len(values) > 1:
        words += f" ± {scale * stdev(values):.{digits}f}"
    elif low is not None and high is not None:
        words += f" [{scale * low:.{digits}f}, {scale * high:.{digits}f}]"
    return words + _floor(column, rows)


def _floor(column: str, rows: Sequence[Row]) -> str:
    """Return the mean noise floor of a plug-in calibration error; "" for other columns."""
    name = column.removeprefix(VALIDATION)
    if name not in FLOORS:
        return ""
    key, (scale, digits) = column[: len(column) - len(name)] + FLOORS[name], scale_of(column)
    floors = [row[key] for row in rows if row.get(key) is not None]
    return f", floor {scale * fmean(floors):.{digits}f}" if floors else ""


def _beside(study: Study, column: str, theirs: Row, rows: Sequence[Row], baseline: Setting | None) -> str:
    """Return a published number, its spread over seeds, and our difference from it."""
    assert study.published is not None
    stated = theirs.get(column)
    if stated is None:
        return ""
    values = [row[column] for row in rows if row.get(column) is not None]
    scale, digits = scale_of(column)
    as_printed = study.published.unit == "fraction" or column in (TEMPERATURE, *study.published.plain)
    unit = scale / (1.0 if as_printed else PERCENT)
    number = stated * unit
    words = f"{number:.{digits}f}"
    for spread in SPREADS:
        if (size := theirs.get(f"{column}_{spread}")) is not None:
            words += f" ± {size * unit:.{digits}f}" + (" (standard error)" if spread == "error" else "")
    beside = 0.0 if baseline is None else baseline.mean(column)
    if study.published.of == "difference":
        words += " more than the baseline"
    if values and beside is not None:
        words += f" ({scale * (fmean(values) - beside) - number:+.{digits}f})"
    return words


def _write_page(path: Path, study: Study, results: Mapping[str, Any], figures: Sequence[Path]) -> Path:
    """Write the page with the PNGs embedded."""
    shown = [
        {
            "address": f"data:image/png;base64,{base64.b64encode(png.read_bytes()).decode()}",
            "words": drawing.title_of(study, int(png.stem.removeprefix("figure"))),
        }
        for png in figures
    ]
    template = Environment(autoescape=True, undefined=StrictUndefined).from_string(TEMPLATE.read_text(encoding="utf-8"))
    write_text(path, template.render(study=study, style=PALETTE, figures=shown, **results))
    return path
