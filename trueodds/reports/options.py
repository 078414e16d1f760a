"""ReportOptions of a report: the answers that it covers, its bins and its confidence level."""

from __future__ import annotations

from dataclasses import dataclass, field

from trueodds.metrics import Costs
from trueodds.processes.choices import ALERT_THRESHOLD, Binning
from trueodds.reports.schemas import Window
from trueodds.sums.bins import CELLS


@dataclass(frozen=True)
class ReportOptions:
    """Window of a report, its bins, and the confidence level of its intervals."""

    window: Window = field(default_factory=Window)
    bins: int = 15
    binning: Binning = "width"
    level: float = 0.95
    cells: int = CELLS
    """Number of cells of confidence on which the answers are counted: a divisor of 3,000."""
    costs: Costs | None = None
    """Costs of a missed positive and of a false alarm, for a model with a positive class."""
    alert_threshold: float = ALERT_THRESHOLD
    """p(positive) above which an alert is given. It is the chosen row of expected decisions."""
    one_look: bool = False
    """True for a table, whose answers are all there at once.

    False if answers keep coming in and are looked at repeatedly.
    """
    binning_of_positive: Binning = "mass"
    """Bins of p(positive). With rare positives, nearly all answers would be in the first bin of equal width."""
