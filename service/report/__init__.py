"""The live calibration report: every number from `trueodds.metrics`, and what they mean in plain words.

`asked` (the query), `numbers` (of sums), `labelling` (what labels cannot tell), `slices` (versions, classes, tags, the
trend), `reading` (plain words), `estimands`, and `route`, which reads the store and puts them together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from service.alarm.schemas import Advice, Alarm
from service.report.estimands import estimands
from service.report.labelling import labelling
from service.report.numbers import numbers
from service.report.schemas import Labelling, Report
from service.report.scope import Asked
from service.report.verdict import CERTAIN, TOLERANCE, cautions, headline, is_within, verdict_of
from service.store.records import StoredSums, Version

__all__ = ["Asked", "numbers_of", "report"]


def numbers_of(sums: StoredSums, asked: Asked) -> dict[str, Any]:
    """`numbers` of what is asked; remembered by the content of the sums."""
    return numbers(sums.labelled, asked.bins, asked.binning, asked.level, asked.everything)


def report(
    version: Version,
    sums: StoredSums,
    asked: Asked | None = None,
    *,
    about: Labelling | None = None,
    alarm: Alarm | None = None,
    advice: Advice | None = None,
    notes: Sequence[str] = (),
    **parts: Any,
) -> Report:
    """Numbers and their reading; null where there are no labels.

    `about`: what `labelling` gives; left out: without the labels that arrived last. `alarm` and `advice`: of all labels
    so far; without them nothing counts as shown. `notes`: more cautions. `parts`: fields that the route has filled
    (corrected, versions, classes, tags, trend, known).
    """
    asked = asked or Asked()
    found, about = numbers_of(sums, asked), about or labelling(version, sums, None, asked)
    tolerance = alarm.nulls[0].tolerance if alarm else TOLERANCE
    within = is_within(sums, numbers_of(sums, replace(asked, level=CERTAIN)), about, tolerance)
    verdict = verdict_of(sums, found, alarm if asked.everything else None, advice, within=within)
    first = headline(verdict, sums, found, asked, tolerance)
    second = [*cautions(sums, about, {"classes": parts.get("classes"), "tags": parts.get("tags")}), *notes]
    return Report(
        model=version.model,
        version=version.version,
        window=asked.window,
        verdict=verdict,
        tolerance=tolerance,
        reading=" ".join([first, *second]),
        headline=first,
        cautions=second,
        answers=sums.answers,
        labelled=sums.labelled.n,
        coverage=about.coverage,
        level=asked.level,
        binning=asked.binning,
        offline=version.metrics,
        estimands=estimands(asked, sums),
        labelling=about,
        alarm=alarm,
        advice=advice,
        **found,
        **parts,
    )
