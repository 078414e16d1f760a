"""The verdict of a report and its words: how things stand, and what to keep in mind."""

from trueodds.reports.verdict.cautions import MEASURED_FROM, cautions
from trueodds.reports.verdict.examples import clearest_range
from trueodds.reports.verdict.headline import headline, reading_at_one_look, reading_of_top_label
from trueodds.reports.verdict.in_the_large import RATIO_TOLERANCE
from trueodds.reports.verdict.rules import (
    CERTAIN,
    LEANS,
    TOLERANCE,
    beside,
    direction_of,
    is_within,
    of_positive,
    verdict_at_one_look,
    verdict_of,
)

__all__ = [
    "CERTAIN",
    "LEANS",
    "MEASURED_FROM",
    "RATIO_TOLERANCE",
    "TOLERANCE",
    "beside",
    "cautions",
    "clearest_range",
    "direction_of",
    "headline",
    "is_within",
    "of_positive",
    "reading_at_one_look",
    "reading_of_top_label",
    "verdict_at_one_look",
    "verdict_of",
]
