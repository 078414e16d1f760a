"""A study's table for people: the mean over seeds of what was asked for, and the published numbers beside it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from pipeline.studies import chance, choice
from pipeline.studies.choice import Chosen, Setting
from pipeline.studies.format import CALIBRATOR, SECONDS, SPREADS, TEMPERATURE, VALIDATION, Study, published_keys
from pipeline.studies.measuring import DEVICE, PROBLEM
from trueodds.evaluation.differences import LEVEL
from trueodds.metrics.significance.differences import Difference, holm, of_seeds

PERCENT = 100.0
SQUARED = "squared_calibration_error"
FLOORS = {
    "ece": "floor_mean",
    "adaptive_ece": "adaptive_floor_mean",
    "mce": "mce_floor_mean",
    "classwise_ece": "classwise_floor",
}
"""Plug-in calibration errors, and the columns that hold what calibrated models show on average."""
SCORES = ("nll", "refinement_nll", "phi_", "brier", "mean_entropy", "sweep_bins", "calibration_p_value", TEMPERATURE)
"""How columns begin that are no fractions."""
Row = Mapping[str, Any]
"""Of `measuring.rows_of`."""


def markdown(of: Sequence[Sequence[str]]) -> list[str]:
    """`cells` as a table of Markdown."""
    head, *rest = of
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rest)]


def cells(study: Study, table: Sequence[Row]) -> list[list[str]]:
    """A head, and a row for each setting, seeds taken together: mean and standard deviation; one seed: its
    interval. Fractions are in %, the squared calibration error in squared points. A plug-in calibration error stands
    beside its noise floor, a published number beside the difference to it.
    """
    axes = choice.leaves_of(study)
    printed = [[*axes, CALIBRATOR, "runs", *study.report]]
    settings = choice.settings_of(study, table)
    for setting in settings:
        first = setting.rows[0]
        line = [str(first.get(leaf, "")) for leaf in axes] + [str(first[CALIBRATOR]), str(len(setting.rows))]
        printed.append(line + [_cell(column, setting.rows) for column in study.report])
        if theirs := published_row(study, first):
            off = (
                _baseline(study, setting, settings) if study.published and study.published.of == "difference" else None
            )
            shown = [_beside(study, column, theirs, setting.rows, off) for column in study.report]
            printed.append(["" for _ in axes] + ["published", "", *shown])
    return printed


def notes(study: Study) -> list[str]:
    """What is said of the reported columns as a whole."""
    return [chance.NOTE] if any(map(chance.is_plug_in, study.report)) else []


def chosen_lines(study: Study, chosen: Sequence[Chosen]) -> list[str]:
    """What the rule took, and its test figures."""
    said = []
    for one in chosen:
        said.append(f"Chosen: {one.words}.")
        for setting in one.settings:
            figures = ", ".join(f"{column} {_cell(column, setting.rows)}" for column in study.report)
            said.append(f"  {setting.name}: its test rows, which the choice did not look at: {figures}")
    return said


def times(study: Study, table: Sequence[Row]) -> list[str]:
    """The time of each setting beside its baseline's, where `seconds` is reported.

    The ratio is the geometric mean over seeds that both have on one device, all attempts of a run taken together. Its
    interval and its test are Student's, of the logarithms, corrected for the number of settings (Holm).
    """
    if SECONDS not in study.report or not study.baseline:
        return []
    settings = [one for one in choice.settings_of(study, table) if one.rows[0][CALIBRATOR] == study.calibrators[0]]
    found = []
    for one in settings:
        beside = _baseline(study, one, settings)
        if beside is not None and beside is not one and (logs := _log_ratios(one.rows, beside.rows)):
            found.append((one.name, of_seeds(logs)))
    tested = [difference.p_value for _, difference in found if difference.p_value is not None]
    adjusted = iter(holm(tested))
    return [_time(name, d, None if d.p_value is None else next(adjusted), len(tested)) for name, d in found]


def _log_ratios(ours: Sequence[Row], theirs: Sequence[Row]) -> list[float]:
    """ln of our seconds over theirs, for each seed and device that both have."""
    of = {(row.get(choice.SEED), row.get(DEVICE)): row[SECONDS] for row in theirs if row.get(SECONDS)}
    pairs = [(row[SECONDS], of.get((row.get(choice.SEED), row.get(DEVICE)))) for row in ours if row.get(SECONDS)]
    return [math.log(seconds / other) for seconds, other in pairs if other]


def _time(name: str, difference: Difference, adjusted_p: float | None, tests: int) -> str:
    about = f"{name}: {math.exp(difference.mean):.2f} times the baseline's time"
    if adjusted_p is None or difference.lower is None or difference.upper is None:
        return f"{about} (one seed, which says nothing of other runs)."
    low, high = (math.exp(end) for end in (difference.lower, difference.upper))
    verdict = f"{'faster' if difference.mean < 0 else 'slower'} than the baseline"
    if adjusted_p >= LEVEL:
        verdict = "not told from the baseline's: chance explains it"
        if (seen := difference.detectable(LEVEL / tests)) is not None:
            verdict += f"; {math.exp(seen):.3g} times would have been seen in 80% of repetitions"
    seeds = f"{difference.seeds} seeds"
    return f"{about} [{low:.2f}, {high:.2f}], {verdict} (p {adjusted_p:.2g} after Holm's correction; {seeds})."


def published_row(study: Study, row: Row) -> Row | None:
    """The published numbers of a row's settings, if there are any."""
    for published in study.published.rows if study.published else ():
        leaves = {key: value for key, value in published.items() if key not in published_keys(study)}
        if published.get(CALIBRATOR, study.calibrators[0]) == row[CALIBRATOR] and all(
            {**study.hold, **row}.get(leaf) == value for leaf, value in leaves.items()
        ):
            return published
    return None


def scale_of(column: str) -> tuple[float, int]:
    """What a column is multiplied by, and its decimals: scores are as they are."""
    if column == SECONDS:
        return 1.0, 0
    if column.removeprefix(VALIDATION) == SQUARED:
        return PERCENT**2, 2
    return (1.0, 4) if column.startswith(SCORES) else (PERCENT, 2)


def _cell(column: str, rows: Sequence[Row]) -> str:
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
    """The noise floor of a plug-in calibration error, its mean over the rows; "" for other columns."""
    name = column.removeprefix(VALIDATION)
    if name not in FLOORS:
        return ""
    key, (scale, digits) = column[: len(column) - len(name)] + FLOORS[name], scale_of(column)
    floors = [row[key] for row in rows if row.get(key) is not None]
    return f", floor {scale * fmean(floors):.{digits}f}" if floors else ""


def _beside(study: Study, column: str, theirs: Row, rows: Sequence[Row], baseline: Setting | None) -> str:
    """The published number, its spread over seeds, and how far ours is from it."""
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


def _baseline(study: Study, setting: Setting, settings: Sequence[Setting]) -> Setting | None:
    """That with the baseline's leaves and all others as this setting's."""
    wanted = {leaf: setting.rows[0].get(leaf) for leaf in (*choice.leaves_of(study), CALIBRATOR)} | study.baseline
    return next((one for one in settings if all(one.rows[0].get(leaf) == wanted[leaf] for leaf in wanted)), None)
