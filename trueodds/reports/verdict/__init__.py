"""The verdict of a report and its words: how things stand, and what to keep in mind."""

from trueodds.reports.verdict.cautions import MEASURED_FROM, cautions
from trueodds.reports.verdict.examples import clearest_range
from trueodds.reports.verdict.headline import OF_TOP_LABEL, headline, reading_at_one_look
from trueodds.reports.verdict.rules import (
    CERTAIN,
    LEANS,
    TOLERANCE,
    direction_of,
    is_refuted,
    is_within,
    of_positive,
    verdict_at_one_look,
    verdict_of,
)
from trueodds.reports.verdict.shares import labelled, percent, told_apart

__all__ = [
    "CERTAIN",
    "LEANS",
    "MEASURED_FROM",
    "OF_TOP_LABEL",
    "TOLERANCE",
    "cautions",
    "clearest_range",
    "direction_of",
    "headline",
    "is_within",
    "is_refuted",
    "labelled",
    "of_positive",
    "percent",
    "reading_at_one_look",
    "told_apart",
    "verdict_at_one_look",
    "verdict_of",
]
