"""A study's figures, of the runs that are done."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.figures import across, training
from pipeline.figures.across import Interval, Point
from pipeline.studies import chance, choice, figure
from pipeline.studies.choice import Row, Setting
from pipeline.studies.expansion import Run
from pipeline.studies.format import CALIBRATOR, Study, StudyError
from pipeline.studies.measuring import KEY
from pipeline.studies.running import EPOCHS, LOGITS, Place
from trueodds import calibrators, logits
from trueodds.errors import unknown
from trueodds.evaluation.entries import name_and_options
from trueodds.metrics import CalibrationSums

PERCENT = {"error_rate": "error", "accuracy": "accuracy"}


def draw(study: Study, places: Sequence[Place], table: Sequence[Row], out: Path) -> list[Path]:
    """The PNGs, each with an .svg beside it: figure1.png and so on; none of a figure whose settings have no run.

    Raises:
        StudyError: a figure of training that names a column which the runs have not measured.
    """
    out.mkdir(parents=True, exist_ok=True)
    by_key = {place.key: place for place in places}
    written = []
    for number, spec in enumerate(study.figures, start=1):
        rows = [row for row in table if row[CALIBRATOR] == spec.calibrator and _has(by_key[row[KEY]].run, spec.where)]
        settings = [one for one in choice.settings_of(study, rows) if not any(row.get("problem") for row in one.rows)]
        if settings:
            path = out / f"figure{number}"
            _DRAWN[spec.kind](spec, _Drawing(study, settings, by_key), path, spec.title or study.title)
            written.append(path.with_suffix(".png"))
    return written


class _Drawing:
    """What figures are made of: settings by short names, their runs' logits and epochs."""

    def __init__(self, study: Study, settings: Sequence[Setting], places: Mapping[str, Place]) -> None:
        leaves = [leaf for leaf in choice.leaves_of(study) if len({_text(one, leaf) for one in settings}) > 1]
        self.names = {_name(one, leaves): one for one in settings}
        self._places = places
        self._calibrator = str(settings[0].rows[0][CALIBRATOR])

    def places(self, setting: Setting) -> list[Place]:
        return [self._places[row[KEY]] for row in setting.rows]

    def sums(self, place: Place) -> CalibrationSums:
        val, test = (logits.read(place.folder / LOGITS, split) for split in ("val", "test"))
        name, options = name_and_options(self._calibrator)
        calibrator = calibrators.fit(val.logits_NC, val.labels_N, name, **options)
        return CalibrationSums.from_probabilities(calibrator(test.logits_NC), test.labels_N)


def _reliability(spec: figure.Reliability, drawing: _Drawing, out: Path, title: str) -> None:
    firsts = {name: drawing.places(setting)[0] for name, setting in drawing.names.items()}
    level = next(iter(firsts.values())).run.params.evaluation.level
    sums = {name: drawing.sums(place) for name, place in firsts.items()}
    across.reliability_grid(sums, spec.bins, level, out, title)


def _bins(_spec: figure.Bins, drawing: _Drawing, out: Path, title: str) -> None:
    sums = {name: [drawing.sums(p) for p in drawing.places(setting)] for name, setting in drawing.names.items()}
    across.robustness(sums, out, title)


def _curves(spec: figure.Curves, drawing: _Drawing, out: Path, title: str) -> None:
    curves = {
        name: [training.read(place.folder / EPOCHS) for place in drawing.places(setting)]
        for name, setting in drawing.names.items()
    }
    for name, of_seeds in curves.items():
        for column in spec.columns:
            if missing := [of for of in of_seeds if column not in of]:
                raise StudyError(f"{name}: {unknown('column of epochs.csv', column, sorted(missing[0]))}")
    across.overlay(curves, spec.columns, spec.smoothing, out, title)


def _points(spec: figure.Points, drawing: _Drawing, out: Path, title: str) -> None:
    found = {
        name: (x, y)
        for name, one in drawing.names.items()
        if (x := _interval(one, spec.x)) is not None and (y := _interval(one, spec.y)) is not None
    }
    values = [(x.value, y.value) for x, y in found.values()]
    of = [
        Point(name, x, y, spec.front and not any(_beats(other, (x.value, y.value)) for other in values))
        for name, (x, y) in found.items()
    ]
    across.points(of, (spec.x.replace("_", " "), spec.y.replace("_", " ")), out, title)


def _bars(spec: figure.Bars, drawing: _Drawing, out: Path, title: str) -> None:
    groups: dict[str, dict[str, Interval]] = {}
    for name, one in drawing.names.items():
        if (interval := _interval(one, spec.y)) is not None:
            group = "" if spec.groups is None else _text(one, spec.groups)
            short = " ".join(part for part in name.split(" ") if spec.groups is None or part != group) or name
            groups.setdefault(group, {})[short] = interval
    across.bars(groups, spec.y.replace("_", " "), out, title)


_DRAWN: dict[str, Callable[[Any, _Drawing, Path, str], None]] = {
    "reliability": _reliability, "bins": _bins, "curves": _curves, "points": _points, "bars": _bars,
}  # fmt: skip


def _interval(setting: Setting, column: str) -> Interval | None:
    """Over seeds; of one seed over rows, where that is known."""
    mean = setting.mean(column)
    if mean is None:
        return None
    if len(setting.rows) > 1:
        over = chance.over_seeds([row[column] for row in setting.rows])
        assert over.lower is not None and over.upper is not None
        return Interval(mean, over.lower, over.upper)
    lower, upper = (setting.rows[0].get(f"{column}_{end}") for end in ("lower", "upper"))
    return Interval(mean, mean if lower is None else lower, mean if upper is None else upper)


def _beats(other: tuple[float, float], one: tuple[float, float]) -> bool:
    return all(a <= b for a, b in zip(other, one, strict=True)) and other != one and not any(map(math.isnan, other))


def _has(run: Run, leaves: Mapping[str, Any]) -> bool:
    return run.matches(leaves)


def _name(setting: Setting, leaves: Sequence[str]) -> str:
    """The values that tell it from the others; of numbers with their leaf's last word."""
    row = setting.rows[0]
    said = [
        str(row[leaf]) if isinstance(row[leaf], str) else f"{leaf.rpartition('.')[2]} {row[leaf]}"
        for leaf in leaves
        if row.get(leaf) is not None
    ]
    return " ".join(said) or setting.name


def _text(setting: Setting, leaf: str) -> str:
    value = setting.rows[0].get(leaf)
    return value if isinstance(value, str) else json.dumps(value, default=str)
