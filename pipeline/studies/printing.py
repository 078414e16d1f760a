"""A study's table for people: the mean over seeds of what was asked for, and the published numbers beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from pipeline.studies.format import CALIBRATOR, TEMPERATURE, Study
from pipeline.studies.measuring import PROBLEM

SEED = "seed"
PERCENT = 100.0
SCORES = ("nll", "brier", "mean_entropy", "sweep_bins", "calibration_p_value", TEMPERATURE)
"""How columns begin that are no fractions."""
Row = Mapping[str, Any]
"""Of `measuring.rows_of`."""


def lines(study: Study, table: Sequence[Row]) -> list[str]:
    """A line for each setting, seeds taken together: mean and standard deviation; one seed: the interval of an ECE.

    Fractions are in %. Beside a published number stand the difference and the noise floor of an ECE.
    """
    groups = _groups(study, table)
    axes = [leaf for axis in study.axes for leaf in axis if leaf != SEED]
    axes = list(dict.fromkeys([*axes, *(leaf for run in study.runs for leaf in run if leaf != SEED)]))
    head = [*axes, CALIBRATOR, "runs", *study.report]
    printed = [head, ["---"] * len(head)]
    for rows in groups:
        first = rows[0]
        line = [str(first.get(leaf, "")) for leaf in axes] + [str(first[CALIBRATOR]), str(len(rows))]
        printed.append(line + [_cell(column, rows) for column in study.report])
        if theirs := published_row(study, first):
            shown = [_beside(study, column, theirs, rows) for column in study.report]
            printed.append(["" for _ in axes] + ["published", "", *shown])
    return [f"| {' | '.join(cells)} |" for cells in printed]


def published_row(study: Study, row: Row) -> Row | None:
    """The published numbers of a row's settings, if there are any."""
    for published in study.published.rows if study.published else ():
        leaves = {key: value for key, value in published.items() if key not in (*study.report, CALIBRATOR)}
        if published.get(CALIBRATOR, study.calibrators[0]) == row[CALIBRATOR] and all(
            {**study.hold, **row}.get(leaf) == value for leaf, value in leaves.items()
        ):
            return published
    return None


def _groups(study: Study, table: Sequence[Row]) -> list[list[Row]]:
    """Rows that differ in their seed alone, in the order of the first of each."""
    leaves = {leaf for axis in study.axes for leaf in axis} | {leaf for run in study.runs for leaf in run}
    found: dict[str, list[Row]] = {}
    for row in table:
        key = json.dumps([[leaf, row.get(leaf)] for leaf in sorted(leaves - {SEED})] + [row[CALIBRATOR]], default=str)
        found.setdefault(key, []).append(row)
    return list(found.values())


def _cell(column: str, rows: Sequence[Row]) -> str:
    if problem := next((row[PROBLEM] for row in rows if row.get(PROBLEM)), None):
        return str(problem)
    values = [row[column] for row in rows if row.get(column) is not None]
    if not values:
        return "not defined"
    scale, digits = _scale(column)
    mean = f"{scale * fmean(values):.{digits}f}"
    if len(values) > 1:
        return f"{mean} ± {scale * stdev(values):.{digits}f}"
    low, high = (rows[0].get(f"{column}_{end}") for end in ("lower", "upper"))
    return mean if low is None or high is None else f"{mean} [{scale * low:.{digits}f}, {scale * high:.{digits}f}]"


def _beside(study: Study, column: str, theirs: Row, rows: Sequence[Row]) -> str:
    """The published number, and how far ours is from it."""
    assert study.published is not None
    stated = theirs.get(column)
    if stated is None:
        return ""
    values = [row[column] for row in rows if row.get(column) is not None]
    scale, digits = _scale(column)
    stated_in = 1.0 if study.published.unit == "fraction" or column == TEMPERATURE else PERCENT
    number = stated * scale / stated_in
    words = f"{number:.{digits}f}"
    if values:
        words += f" ({scale * fmean(values) - number:+.{digits}f})"
    floor = [row["floor_mean"] for row in rows if row.get("floor_mean") is not None]
    return f"{words}, floor {scale * fmean(floor):.{digits}f}" if column == "ece" and floor else words


def _scale(column: str) -> tuple[float, int]:
    """What a column is multiplied by, and its decimals: scores are as they are."""
    return (1.0, 4) if column.startswith(SCORES) else (PERCENT, 2)
