"""Sums of a table of answers, from which its report is made, wherever the sums were made."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from trueodds.files import FileError
from trueodds.inputs.columns import Texts
from trueodds.processes.choices import TrendUnit
from trueodds.reports.resolution import RoundedFigures, rounded_figures_of_sums
from trueodds.reports.schemas import MOST_MINUTES, Unit
from trueodds.sums.answers import AnswerSums
from trueodds.sums.bins import CELLS
from trueodds.sums.cells import check_cells
from trueodds.sums.fine import COARSE, EQUAL_F, FINE, FineSums
from trueodds.sums.inputs import Array
from trueodds.sums.positive import PositiveSums
from trueodds.sums.rounding import EXACT, Resolution
from trueodds.sums.sums import CalibrationSums

COLUMNS = (
    "answers",
    "count",
    "correct",
    "zeros",
    "confidence",
    "nll",
    "nll_squared",
    "brier",
    "brier_squared",
)
"""Numbers of a group. `answers` counts all rows, the others are sums over the labelled ones."""
_CELLS = [COLUMNS.index(name) for name in ("count", "confidence", "correct", "nll", "nll_squared")]
_CELLS += [COLUMNS.index(name) for name in ("brier", "brier_squared")]
UNITS: tuple[Unit, ...] = ("minute", "hour", "day", "month")
MAX_POINTS = 120
"""Largest number of points of a trend if no unit is requested, unless it is by month."""
_DAY_MS = 86_400_000
_MS = {"minute": 60_000, "hour": 3_600_000, "day": _DAY_MS}


@dataclass(frozen=True, eq=False)
class SumGroups:
    """G groups of rows by part, name, number and cell, with their sums."""

    part_G: npt.NDArray[np.object_]
    name_G: npt.NDArray[np.object_]
    number_G: npt.NDArray[np.int64]
    cell_G: npt.NDArray[np.int64]
    sums_GK: Array
    """The numbers of `COLUMNS`. NaN: unknown."""

    def of(self, part: str) -> SumGroups:
        """Return the groups of one part."""
        return self.only(self.part_G == part)

    def only(self, which_G: npt.NDArray[np.bool_]) -> SumGroups:
        """Return some of the groups."""
        return SumGroups(
            self.part_G[which_G],
            self.name_G[which_G],
            self.number_G[which_G],
            self.cell_G[which_G],
            self.sums_GK[which_G],
        )


@dataclass(frozen=True, eq=False)
class TableSums:
    """Sums of a table of answers: everything that its report needs."""

    source: str
    """Name of the table."""
    classes: tuple[str, ...]
    """Names of the classes; empty if the table does not name them."""
    groups: SumGroups
    by_confidence: bool = False
    """Whether the table holds the probability of the predicted class alone."""
    positive_class: str = ""
    resolution: Resolution = EXACT
    unit: Unit | None = None
    """Unit of the periods; None without a trend."""
    columns: tuple[str, ...] = ()
    """Columns that are compared: version, tag, confidence_source."""
    notes: tuple[str, ...] = field(default=())
    """Sentences on how the table was read."""

    def __post_init__(self) -> None:
        counts_GK = self.groups.sums_GK[:, :4]
        if len(counts_GK) and not (np.isfinite(counts_GK).all() and (counts_GK >= 0).all()):
            raise FileError(f"{self.source}: the sums hold a negative count or none; make them again")

    def __len__(self) -> int:
        return self.total.answers

    @property
    def total(self) -> AnswerSums:
        """Sums of all answers."""
        return self._sums(self.groups.of("class"))

    @property
    def has_classes(self) -> bool:
        """Whether the table names the predicted classes."""
        return bool(self.classes)

    @property
    def version(self) -> str:
        """The version, if all answers have the same one."""
        names = list(self.by("version"))
        return names[0] if len(names) == 1 else ""

    def has(self, column: str) -> bool:
        """Return whether the sums have groups of a column, or periods (`time`)."""
        return self.unit is not None if column == "time" else column in self.columns

    def by(self, column: str) -> dict[str, AnswerSums]:
        """Return the sums of each value of a column, without NLL and Brier score; empty if it was not compared."""
        groups = self.groups.of(column)
        if column == "class":
            names = np.array([self.classes[k] if 0 <= k < len(self.classes) else "" for k in groups.number_G], object)
            order = dict.fromkeys(self.classes)
        else:
            names = np.array(Texts.of(groups.name_G.tolist(), np.arange(len(groups.name_G))).as_list(), object)
            order = dict.fromkeys(sorted(set(names.tolist())))
        found = {name: self._sums(groups.only(names == name), scores=False) for name in order}
        return {name: sums for name, sums in found.items() if sums.answers}

    def periods(self, unit: TrendUnit) -> tuple[Unit, list[tuple[int, AnswerSums]]]:
        """Return the sums of each period with answers, with its start in Unix milliseconds, and the unit.

        Raises:
            FileError: The sums have coarser periods.
        """
        groups = self.groups.of("period")
        assert self.unit is not None
        finest = UNITS.index(self.unit)
        units = UNITS[finest:]
        if unit != "auto":
            if unit not in units:
                raise FileError(f"{self.source} has sums by {self.unit}, not by {unit}; make them with --trend {unit}")
            units = (unit,)
        start_G = _starts(groups.number_G, self.unit)
        for chosen in units:
            of_unit_G = _floor(start_G, chosen)
            starts = np.unique(of_unit_G)
            if len(starts) <= (MOST_MINUTES if chosen == "minute" else MAX_POINTS):
                break
        parts = [(int(start), self._sums(groups.only(of_unit_G == start), scores=False)) for start in starts]
        return chosen, parts

    def positive(self, name: str) -> PositiveSums:
        """Return the sums by the probability of the positive class.

        Raises:
            FileError: The sums were made without it, or for another class.
        """
        if name != self.positive_class:
            made = f"for p({self.positive_class})" if self.positive_class else "without a positive class"
            raise FileError(f"{self.source} holds sums {made}; make them with --positive {name}")
        groups = self.groups.of("positive")
        fine_G = groups.cell_G >= CELLS
        fine = np.zeros((3, FINE))
        columns = [COLUMNS.index(name) for name in ("count", "confidence", "correct")]
        for row, column in enumerate(columns):
            np.add.at(fine[row], groups.cell_G[fine_G] - CELLS, groups.sums_GK[fine_G, column])
        equal_G = np.where(fine_G, EQUAL_F[np.where(fine_G, groups.cell_G - CELLS, 0)], groups.cell_G)
        sums = self._sums(replace(groups, cell_G=equal_G), of_positive=True)
        if not sums.labelled.n:
            return PositiveSums(name, sums)
        assert int(fine[0].sum()) == int(sums.labelled.cells[0, :COARSE].sum())
        return PositiveSums(name, replace(sums, labelled=FineSums(sums.labelled.cells, fine)))

    def rounding(self, level: float) -> RoundedFigures | None:
        """Describe the resolution; None if the table holds the probability of the predicted class alone."""
        if self.by_confidence:
            return None
        labelled = self.total.labelled.n
        if self.resolution.step is not None:
            sums = self._sums(self.groups.of("rounded"), of_positive=True).labelled
            return rounded_figures_of_sums(sums, labelled, self.resolution, level)
        groups = self.groups.of("class")
        zeros_C = np.bincount(groups.cell_G, groups.sums_GK[:, COLUMNS.index("zeros")], CELLS)
        cells = CalibrationSums.zero().cells
        cells[0] = cells[2] = zeros_C
        return rounded_figures_of_sums(CalibrationSums(cells), labelled, self.resolution, level)

    def _sums(self, groups: SumGroups, *, scores: bool = True, of_positive: bool = False) -> AnswerSums:
        """Return the sums of some groups on the cells."""
        answers_C = np.bincount(groups.cell_G, groups.sums_GK[:, 0], CELLS).astype(np.int64)
        cells = np.stack([np.bincount(groups.cell_G, groups.sums_GK[:, k], CELLS) for k in _CELLS]).astype(np.float64)
        occupied_C = cells[0] > 0
        if not scores or (self.by_confidence and not of_positive):
            cells[3:] = np.where(occupied_C, np.nan, 0.0)
        elif not self.resolution.has_nll:
            cells[3:5] = np.where(occupied_C, np.nan, 0.0)
        return AnswerSums(answers_C, CalibrationSums(check_cells(cells) if not of_positive else cells))


def _starts(number_G: npt.NDArray[np.int64], unit: Unit) -> npt.NDArray[np.int64]:
    """Return the starts of periods in Unix milliseconds."""
    if unit == "month":
        return (number_G - 12 * 1970).astype("datetime64[M]").astype("datetime64[ms]").astype(np.int64)
    return number_G * _MS[unit]


def _floor(ms_G: npt.NDArray[np.int64], unit: Unit) -> npt.NDArray[np.int64]:
    """Return the starts of the periods that contain times."""
    code = {"minute": "m", "hour": "h", "day": "D", "month": "M"}[unit]
    times = ms_G.astype("datetime64[ms]").astype(f"datetime64[{code}]")
    return times.astype("datetime64[ms]").astype(np.int64)
