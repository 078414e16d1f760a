"""Draws a study's figures from its finished runs."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.figures import across, close_look, labels, rows, training
from pipeline.figures.across import Interval, Point
from pipeline.studies import baseline_comparison, measuring
from pipeline.studies import format as study_format
from pipeline.studies.format import CALIBRATOR, Study, StudyError
from pipeline.studies.measuring import KEY, PROBLEM, Row, Setting, is_plug_in, leaves_of
from pipeline.studies.runs import Place
from pipeline.training.files import EPOCH_ROWS, EPOCHS
from trueodds.errors import unknown
from trueodds.files import read_npz
from trueodds.metrics import CalibrationSums


def draw(
    study: Study, places: Sequence[Place], table: Sequence[Row], under_shift: Sequence[Row], out: Path
) -> list[Path]:
    """Draw figure1.png and so on, each with an .svg file, and return the PNGs.

    A figure is left out if its settings have no run, or if the runs lack the data that it shows.

    Args:
        study: The study.
        places: Its runs.
        table: The rows of `measuring.rows_of`.
        under_shift: The rows of `measuring.shifted_rows_of`.
        out: The folder for the figures.

    Raises:
        StudyError: A figure of training uses a column that the runs have not measured.
    """
    out.mkdir(parents=True, exist_ok=True)
    by_key = {place.key: place for place in places}
    written = []
    for number, spec in enumerate(study.figures, start=1):
        shown = getattr(spec, "calibrators", None) or (
            [spec.calibrator] if spec.kind != "effects" else study.calibrators
        )
        of = [row for row in table if row[CALIBRATOR] in shown and by_key[row[KEY]].run.matches(spec.where)]
        settings = [one for one in measuring.settings_of(study, of) if not any(row.get(PROBLEM) for row in one.rows)]
        if settings:
            path = out / f"figure{number}"
            drawing = _Drawing(study, settings, by_key, under_shift)
            try:
                _DRAWN[spec.kind](spec, drawing, path, title_of(study, number))
            except _NothingError:
                continue
            written.append(path.with_suffix(".png"))
    return written


class _NothingError(Exception):
    """The finished runs lack the data that a figure shows."""


class _Drawing:
    """Data for figures: settings by short names, with the logits and epochs of their runs."""

    def __init__(
        self, study: Study, settings: Sequence[Setting], places: Mapping[str, Place], under_shift: Sequence[Row]
    ) -> None:
        self.study, self.settings, self.under_shift = study, settings, under_shift
        leaves = [leaf for leaf in leaves_of(study) if len({_text(one, leaf) for one in settings}) > 1]
        self.names = {_name(one, leaves): one for one in settings}
        self._places = places
        self._calibrator = str(settings[0].rows[0][CALIBRATOR])

    def places(self, setting: Setting) -> list[Place]:
        """Return the runs of a setting."""
        return [self._places[row[KEY]] for row in setting.rows]

    def arrays(self) -> dict[str, rows.Rows]:
        """Read the values of single rows at the epochs of `curves`, for the first seed of each setting."""
        found: dict[str, rows.Rows] = {name: read_npz(path) for name, one in self.names.items()
                 if (path := self.places(one)[0].folder / EPOCH_ROWS).is_file()}  # fmt: skip
        if not found:
            raise _NothingError
        if len({tuple(of["epochs"]) for of in found.values()}) > 1:
            raise StudyError("a figure by epoch needs the same `curves` in all of its runs; select runs with `where`")
        return found

    def sums(self, place: Place) -> CalibrationSums:
        """Return the calibration sums of a run's test rows."""
        val, test = place.logits()
        calibrator = measuring.fit_calibrator(val, self._calibrator)
        return CalibrationSums.from_probabilities(calibrator(test.logits_NC, groups=test.groups_N), test.labels_N)


def _reliability(spec: study_format.Reliability, drawing: _Drawing, out: Path, title: str) -> None:
    firsts = {name: drawing.places(setting)[0] for name, setting in drawing.names.items()}
    level = next(iter(firsts.values())).run.params.evaluation.level
    sums = {name: drawing.sums(place) for name, place in firsts.items()}
    across.reliability_grid(sums, spec.bins, level, out, title)


def _training(_spec: study_format.TrainingReliability, drawing: _Drawing, out: Path, title: str) -> None:
    of = drawing.arrays()
    if len(of) > 1:
        raise StudyError(f"a figure `training` shows one setting, not {', '.join(of)}; select one with `where`")
    close_look.reliability(dict(*of.values()), out, title)


def _bins(_spec: study_format.BinsFigure, drawing: _Drawing, out: Path, title: str) -> None:
    sums = {name: [drawing.sums(p) for p in drawing.places(setting)] for name, setting in drawing.names.items()}
    across.robustness(sums, out, title)


def _curves(spec: study_format.Curves, drawing: _Drawing, out: Path, title: str) -> None:
    curves = {
        name: [training.read(place.folder / EPOCHS) for place in drawing.places(setting)]
        for name, setting in drawing.names.items()
    }
    for name, of_seeds in curves.items():
        for column in spec.columns:
            if missing := [of for of in of_seeds if column not in of]:
                raise StudyError(f"{name}: {unknown('column of epochs.csv', column, sorted(missing[0]))}")
    across.overlay(curves, spec.columns, spec.smoothing, out, title)


def _points(spec: study_format.Points, drawing: _Drawing, out: Path, title: str) -> None:
    found = {
        name: (x, y)
        for name, one in drawing.names.items()
        if (x := _interval(one, spec.x)) is not None and (y := _interval(one, spec.y)) is not None
    }
    values = [(x.value, y.value) for x, y in found.values()]
    front = spec.front and not any(map(is_plug_in, (spec.x, spec.y)))
    of = [
        Point(name, x, y, front and not any(_beats(other, (x.value, y.value)) for other in values))
        for name, (x, y) in found.items()
    ]
    across.points(of, (_label(spec.x), _label(spec.y)), out, title)


def _bars(spec: study_format.Bars, drawing: _Drawing, out: Path, title: str) -> None:
    groups: dict[str, dict[str, Interval]] = {}
    for name, one in drawing.names.items():
        if (interval := _interval(one, spec.y)) is not None:
            group = "" if spec.groups is None else _text(one, spec.groups)
            short = " ".join(part for part in name.split(" ") if spec.groups is None or part != group) or name
            groups.setdefault(group, {})[short] = interval
    across.bars(groups, _label(spec.y), out, title)


def _effects(spec: study_format.Effects, drawing: _Drawing, out: Path, title: str) -> None:
    """Draw a group for each baseline with all other parameters, and a bar for each value compared with it."""
    by_leaves = {_leaves(drawing, one): one for one in drawing.settings}
    groups: dict[str, dict[str, float]] = {}
    for leaves, one in by_leaves.items():
        value = str(one.rows[0].get(spec.leaf))
        other = (
            by_leaves.get(_leaves(drawing, one, {spec.leaf: spec.against[value]})) if value in spec.against else None
        )
        pair = [[row[spec.y] for row in of.rows if row.get(spec.y) is not None] for of in (one, other) if of]
        if len(pair) == 2 and min(map(len, pair)) > 1 and not math.isnan(d := baseline_comparison.cohens_d(*pair)):
            rest = [text for leaf, text in leaves if leaf != spec.leaf and len({dict(k)[leaf] for k in by_leaves}) > 1]
            groups.setdefault("\n".join([f"against {spec.against[value]}", *rest]), {})[str(value)] = d
    if not groups:
        raise _NothingError
    across.effects(groups, f"Cohen's d of {_label(spec.y)} (below 0: lower)", out, title)


def _shift(spec: study_format.Shift, drawing: _Drawing, out: Path, title: str) -> None:
    found = measuring.shift_lines(drawing.study, drawing.under_shift, spec)
    if not found:
        raise _NothingError

    def interval(rows: Sequence[Row]) -> Interval:
        mean, error = measuring.mean_and_error(rows, spec.y)
        return _within(spec.y, mean, mean - (error or 0.0), mean + (error or 0.0))

    lines = {name: [(at, interval(of[at])) for at in sorted(of)] for name, of in found.items()}
    across.shift(lines, _label(spec.y), out, title)


_DRAWN: dict[str, Callable[[Any, _Drawing, Path, str], None]] = {
    "reliability": _reliability, "training": _training, "bins": _bins, "curves": _curves, "points": _points,
    "bars": _bars, "effects": _effects, "shift": _shift,
    "densities": lambda spec, drawing, out, title: rows.densities(drawing.arrays(), spec.array, out, title),
    "gradients": lambda _, drawing, out, title: rows.gradients(drawing.arrays(), out, title),
    "outcomes": lambda _, drawing, out, title: rows.outcomes(drawing.arrays(), out, title),
}  # fmt: skip


def _label(column: str) -> str:
    """Return the axis label of a measure."""
    return labels.label(column) + (", a plug-in estimate" if is_plug_in(column) else "")


def title_of(study: Study, number: int) -> str:
    """Return the title of the n-th figure, from 1: its own, or the study's with a description."""
    spec = study.figures[number - 1]
    if spec.title:
        return spec.title
    shown = {
        "reliability": "reliability diagrams", "bins": "ECE and MCE by the number of bins",
        "curves": "epochs of training", "training": "reliability of the training rows",
        "gradients": "gradient norm by Brier score", "outcomes": "correct and wrong rows by p of the true class",
    }  # fmt: skip
    columns = [labels.name(getattr(spec, name)) for name in ("y", "x", "array") if hasattr(spec, name)]
    joined = " against ".join(columns)
    words = {"bars": f"{joined} by setting", "points": joined, "densities": f"densities of the {joined}",
             "shift": f"{joined} under corruption", "effects": f"effect sizes of the {joined}"}  # fmt: skip
    where = "".join(f", {value}" for value in spec.where.values())
    fitted = "" if spec.calibrator == "identity" else f" after {spec.calibrator}"
    return f"{study.title}: {({**shown, **words})[spec.kind]}{fitted}{where}"


def _within(column: str, value: float, lower: float, upper: float) -> Interval:
    """Return an interval cut to the column's possible values, 0 to 1 for fractions."""
    least, most = labels.limits(column)
    return Interval(value, max(lower, least), min(upper, most))


def _interval(setting: Setting, column: str) -> Interval | None:
    """Return the interval over seeds; for one seed the interval over rows, if it is known."""
    mean = setting.mean(column)
    if mean is None:
        return None
    if len(setting.rows) > 1:
        over = baseline_comparison.over_seeds([row[column] for row in setting.rows])
        assert over.lower is not None and over.upper is not None
        return _within(column, mean, over.lower, over.upper)
    lower, upper = (setting.rows[0].get(f"{column}_{end}") for end in ("lower", "upper"))
    return Interval(mean, mean if lower is None else lower, mean if upper is None else upper)


def _beats(other: tuple[float, float], one: tuple[float, float]) -> bool:
    """Return whether a point is at least as low as another in both measures, and lower in one."""
    return all(a <= b for a, b in zip(other, one, strict=True)) and other != one and not any(map(math.isnan, other))


def _leaves(drawing: _Drawing, setting: Setting, other: Mapping[str, Any] | None = None) -> tuple[tuple[str, str], ...]:
    """Return a setting's parameters and calibrator as texts, with those in `other` replaced."""
    names = [*leaves_of(drawing.study), CALIBRATOR]
    values = {**setting.rows[0], **(other or {})}
    return tuple((name, str(values.get(name))) for name in names)


def _name(setting: Setting, leaves: Sequence[str]) -> str:
    """Return a short name: the values in which a setting differs. Numbers follow the last word of their parameter."""
    row = setting.rows[0]
    said = [
        str(row[leaf]) if isinstance(row[leaf], str) else f"{leaf.rpartition('.')[2]} {row[leaf]}"
        for leaf in leaves
        if row.get(leaf) is not None
    ]
    return " ".join(said) or setting.name.replace("=", " ")


def _text(setting: Setting, leaf: str) -> str:
    """Return a setting's value of a parameter as text."""
    value = setting.rows[0].get(leaf)
    return value if isinstance(value, str) else json.dumps(value, default=str)
