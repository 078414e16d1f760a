"""Estimates from human labels and a judge's labels of a version's answers, and the judge's error rates."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from service.store import Store
from service.store.rows import UNKNOWN, JudgedAnswers, JudgedCounts, Version
from service.store.store import LATEST_MS
from trueodds.errors import UserError
from trueodds.reports import ReportOptions
from trueodds.reports.schemas.judge import JudgeFigures
from trueodds.reports.table.judge_figures import JudgedRows, figures_of_rows
from trueodds.sums.hours import HOUR_MS, hours_of

COLUMN = "judge_label"
"""Name of the judge's labels, that of the column in an export of all predictions."""
MOST_ANSWERS = 200_000
"""Largest number of answers whose figures are computed. Reading them takes half a second."""
VERSIONS = 100
"""Number of versions whose figures are kept."""
KEPT_SECONDS = 600.0
"""Longest time for which figures are kept. Retention and deletions remove answers, which no count of labels shows."""


@dataclass
class JudgeReadings:
    """Reads figures, and keeps those of all answers for 10 minutes, or until an answer or a label comes."""

    clock: Callable[[], float] = time.monotonic
    _figures: dict[tuple[str, str], tuple[tuple[float, ...], float, JudgeFigures]] = field(default_factory=dict)

    async def of_all(
        self, store: Store, version: Version, options: ReportOptions, counts: tuple[float, ...]
    ) -> JudgeFigures | None:
        """Return the figures of all answers of a version.

        Args:
            store: The store.
            version: The version.
            options: Bins and confidence level.
            counts: Numbers of its answers and labels.
        """
        of_labels = await store.read_judge_stamp(*version.key)
        if not of_labels[0]:
            return None
        stamp, now = (*counts, *of_labels), self.clock()
        known = self._figures.get(version.key)
        # Too many answers have no estimates that a label could change
        fresh = known is not None and (known[0] == stamp or known[2].answers > MOST_ANSWERS)
        if known is not None and fresh and now - known[1] < KEPT_SECONDS:
            return known[2]
        figures = await figures_of(store, version, options)
        if figures is not None:
            if len(self._figures) >= VERSIONS:
                self._figures.clear()
            self._figures[version.key] = stamp, now, figures
        return figures


async def figures_of(
    store: Store, version: Version, options: ReportOptions, since_ms: int | None = None, until_ms: int | None = None
) -> JudgeFigures | None:
    """Compute the figures of the answers in whole hours; None without a judge's label of the version.

    Args:
        store: The store.
        version: The version.
        options: Bins and confidence level.
        since_ms: Time of the first answers.
        until_ms: Time of the end.
    """
    if not await store.count_judge_labels(*version.key):
        return None
    first, end = hours_of(since_ms, until_ms)
    window = 0 if first is None else first * HOUR_MS, LATEST_MS if end is None else end * HOUR_MS
    rows = await store.read_judged(*version.key, *window, MOST_ANSWERS + 1)
    assert rows is not None
    if len(rows) > MOST_ANSWERS:
        return _too_many(await store.count_judged(*version.key, *window))
    return await asyncio.to_thread(_figures, rows, version, options)


def _too_many(counts: JudgedCounts) -> JudgeFigures:
    labels = counts.labels_with_propensity if counts.propensities else counts.labels
    reading = (
        f"There are more than {MOST_ANSWERS:,} answers. Choose a shorter window (since, until), or export the"
        f" predictions and run trueodds report --judge {COLUMN}."
    )
    return JudgeFigures(
        column=COLUMN, answers=counts.answers, judge_labels=counts.judge_labels, labels=labels, reading=reading
    )


def _figures(answers: JudgedAnswers, version: Version, options: ReportOptions) -> JudgeFigures:
    rows = rows_of(answers, version)
    judged, labels = int(np.isfinite(rows.judge_N).sum()), int(np.isfinite(rows.human_N).sum())
    none = JudgeFigures(column=COLUMN, answers=len(answers), judge_labels=judged, labels=labels, reading="")
    if not judged:
        none.reading = "No answer of this time has a label of the judge."
        return none
    try:
        positive = version.positive_class
        is_positive_N = None if positive is None else answers.label_N == positive.index
        return figures_of_rows(rows, COLUMN, options, version.positive, is_positive_N)
    except UserError as error:
        none.reading = f"There are no estimates: {error}."
        return none


def rows_of(rows: JudgedAnswers, version: Version) -> JudgedRows:
    """Return both labels of each answer.

    If an answer has a propensity, labels without one are left out: their weight is unknown.
    """
    labelled_N = rows.label_N != UNKNOWN
    has_propensities = bool(np.isfinite(rows.propensity_N).any())
    known_N = labelled_N & np.isfinite(rows.propensity_N) if has_propensities else labelled_N
    judge_N = np.where(rows.judge_N == UNKNOWN, np.nan, rows.judge_N == rows.predicted_N)
    return JudgedRows(
        source=f"{version.model}/{version.version}",
        confidence_N=rows.confidence_N,
        labels=int(labelled_N.sum()),
        human_N=np.where(known_N, rows.label_N == rows.predicted_N, np.nan),
        judge_N=judge_N,
        propensity_N=rows.propensity_N if has_propensities else None,
        classes=version.classes,
        human_class_N=np.where(known_N, rows.label_N, -1),
        judge_class_N=rows.judge_N,
        is_table=False,
    )
