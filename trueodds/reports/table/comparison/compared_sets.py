"""Comparison of models by their conformal sets on the same labelled rows: coverage and size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trueodds.evaluation.paired_differences import SET_COVERAGE, SET_SIZE, adjust_p_values
from trueodds.metrics.intervals.binomial import binomial_interval
from trueodds.metrics.significance.differences import of_rows
from trueodds.reports.table.comparison.difference import ComparedDifference
from trueodds.reports.table.set_rows import SetRows
from trueodds.reports.table.table_content import Answers
from trueodds.reports.words import align, decimal, percent

Rows = npt.NDArray[np.intp]
MEANING = (
    "Sets of both models should cover the level. Of sets that do, smaller ones tell more. The differences are those of"
    " these thresholds: other calibration rows give others. A table cannot show how many"
    " rows chose the thresholds: see `trueodds report --set-level --set-rows` for a test of each model's sets."
)


@dataclass(frozen=True, kw_only=True)
class ComparedSets:
    """Conformal sets of one model on the compared rows."""

    name: str
    hits: int
    """Number of sets that hold the true class."""
    coverage: float
    lower: float
    """With `upper`: exact binomial interval of the coverage (Clopper-Pearson)."""
    upper: float
    mean_size: float
    """Mean number of classes in a set."""
    empty: int
    """Number of sets without a class."""


@dataclass(frozen=True, kw_only=True)
class SetComparison:
    """Coverage and size of the sets of each model, and the paired differences from the first model."""

    level: float
    """Level that the sets should cover."""
    models: list[ComparedSets]
    differences: list[ComparedDifference]

    def __str__(self) -> str:
        rows = [
            ["", *[one.name for one in self.models]],
            ["covered", *[percent(one.coverage) for one in self.models]],
            ["  interval", *[f"{percent(one.lower)} to {percent(one.upper)}" for one in self.models]],
            ["mean size", *[decimal(one.mean_size, 2) for one in self.models]],
            ["empty sets", *[f"{one.empty:,}" for one in self.models]],
        ]
        sentences = [f"- {one.sentence}" for one in self.differences]
        title = f"Conformal sets of level {self.level:g}"
        return "\n".join([title, *align(rows, "<" + ">" * len(self.models)), "", *sentences, "", MEANING])


def compare_sets(tables: Mapping[str, Answers], rows: Mapping[str, Rows], *, level: float = 0.95) -> SetComparison:
    """Compare the sets of each table with those of the first on common labelled rows.

    The differences of the coverage and of the size are means over rows, ours minus theirs, with a paired t-test. Their
    p-values are corrected for the number of models (Holm).

    Args:
        tables: Answers with their sets, by the name of their model. All sets have the same level.
        rows: Positions of the common labelled rows in each table, in one order.
        level: Confidence level of the intervals.

    References:
        Clopper and Pearson (1934), The use of confidence or fiducial limits illustrated in the case of the binomial.
    """
    sets = {name: _sets_of(answers) for name, answers in tables.items()}
    places = {name: (answers.labelled_N.cumsum() - 1)[rows[name]] for name, answers in tables.items()}
    covered = {name: one.covered_L[places[name]] for name, one in sets.items()}
    size = {name: one.size_L[places[name]] for name, one in sets.items()}
    first, *others = tables
    keys = [(name, measure) for name in others for measure in (SET_COVERAGE, SET_SIZE)]
    values = {SET_COVERAGE: covered, SET_SIZE: size}
    bounds = {SET_COVERAGE: 1.0, SET_SIZE: float(max(len(one.classes) for one in sets.values()))}
    tested = [
        (
            measure,
            of_rows((values[measure][name].astype(float) - values[measure][first])[None], level, bound=bounds[measure]),
        )
        for name, measure in keys
    ]
    differences = [
        ComparedDifference.of(one, model=name, baseline=first, models=len(tables))
        for (name, _), one in zip(keys, adjust_p_values(tested), strict=True)
    ]
    return SetComparison(
        level=sets[first].rule.level,
        models=[_figures(name, covered[name], size[name], level) for name in tables],
        differences=differences,
    )


def _sets_of(answers: Answers) -> SetRows:
    assert answers.sets is not None  # a table without them is refused when it is read
    return answers.sets


def _figures(name: str, covered_M: npt.NDArray[np.bool_], size_M: Rows, level: float) -> ComparedSets:
    hits = int(np.count_nonzero(covered_M))
    lower, upper = binomial_interval(hits, len(covered_M), level=level)
    return ComparedSets(
        name=name,
        hits=hits,
        coverage=hits / len(covered_M),
        lower=float(lower),
        upper=float(upper),
        mean_size=float(np.mean(size_M)),
        empty=int(np.count_nonzero(size_M == 0)),
    )
