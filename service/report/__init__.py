"""The live calibration report: every number from `pipeline.metrics`, and what they mean in plain words.

`asked` (the query), `numbers` (of sums), `labelling` (what labels cannot tell), `slices` (versions, classes, tags, the
trend), `reading` (plain words), `estimands`, and `route`, which reads the store and puts them together.
"""

from __future__ import annotations

from typing import Any

from service.records import StoredSums, Version
from service.report.asked import Asked
from service.report.estimands import estimands
from service.report.labelling import labelling
from service.report.numbers import numbers
from service.report.reading import cautions, headline, verdict_of
from service.report_schemas import Labelling, Report

__all__ = ["Asked", "numbers_of", "report"]


def numbers_of(sums: StoredSums, asked: Asked) -> dict[str, Any]:
    """`numbers` of what is asked; remembered by the content of the sums."""
    return numbers(sums.labelled, asked.bins, asked.binning, asked.level, asked.everything)


def report(
    version: Version, sums: StoredSums, asked: Asked | None = None, *, about: Labelling | None = None, **parts: Any
) -> Report:
    """Numbers and their reading; null where there are no labels.

    `about`: what `labelling` gives; left out: without the labels that arrived last. `parts`: fields that the route has
    filled (corrected, versions, classes, tags, trend, alarm, advice, known).
    """
    asked = asked or Asked()
    found, about = numbers_of(sums, asked), about or labelling(version, sums, None, asked)
    verdict = verdict_of(sums, found)
    first = headline(verdict, sums, found, asked)
    second = cautions(sums, about, {"classes": parts.get("classes"), "tags": parts.get("tags")})
    return Report(
        model=version.model,
        version=version.version,
        window=asked.window,
        verdict=verdict,
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
        **found,
        **parts,
    )
