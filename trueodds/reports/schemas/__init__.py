"""The report and its parts as pydantic models, as the service answers them."""

from trueodds.reports.schemas.figures import Bin, Binning, Decisions, Ece, MayAct, PositiveFigures, WorstBin
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
from trueodds.reports.schemas.ordered import AtLeastFigures, OrderedFigures
from trueodds.reports.schemas.report import Check, Held, KnownVersion, Maturing, Report, Verdict, Window
from trueodds.reports.schemas.rounding import Rounding

__all__ = [
    "AtLeastFigures",
    "MayAct",
    "OrderedFigures",
    "Bin",
    "Binning",
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
