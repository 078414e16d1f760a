"""The report and its parts as pydantic models, as the service answers them."""

from trueodds.reports.schemas.figures import (
    AtLeastFigures,
    Bin,
    Decisions,
    Ece,
    MayAct,
    OrderedFigures,
    PositiveFigures,
    Rounding,
    WorstBin,
)
from trueodds.reports.schemas.groups import MOST_MINUTES, NO_TAG, ROUNDING, Confirmation, Slice, Trend, TrendPoint, Unit
from trueodds.reports.schemas.labelling import (
    Crowded,
    Drift,
    ExpectedAccuracy,
    Finding,
    Labelling,
    Sensitivity,
    WeightedFigures,
)
from trueodds.reports.schemas.report import Check, Held, KnownVersion, Maturing, Report, Verdict, Window

__all__ = [
    "AtLeastFigures",
    "MayAct",
    "OrderedFigures",
    "Bin",
    "Decisions",
    "Ece",
    "PositiveFigures",
    "WorstBin",
    "Confirmation",
    "MOST_MINUTES",
    "NO_TAG",
    "ROUNDING",
    "Slice",
    "Trend",
    "TrendPoint",
    "Unit",
    "Crowded",
    "Drift",
    "ExpectedAccuracy",
    "Finding",
    "Labelling",
    "Sensitivity",
    "WeightedFigures",
    "Check",
    "Held",
    "KnownVersion",
    "Maturing",
    "Report",
    "Rounding",
    "Verdict",
    "Window",
]
