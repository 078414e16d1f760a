"""Which answers a report is about, and how finely it is computed."""

from __future__ import annotations

from dataclasses import dataclass, field

from trueodds.metrics import Costs
from trueodds.reports.schemas import Window
from trueodds.sums.bins import CELLS, Binning

TOLERANCE = 0.02
"""A calibration error that is small enough, where no alarm names its own."""


@dataclass(frozen=True)
class Options:
    """The window of a report, its bins, and the level of its intervals."""

    window: Window = field(default_factory=Window)
    bins: int = 15
    binning: Binning = "width"
    level: float = 0.95
    cells: int = CELLS
    """Cells of confidence on which the answers are counted: a divisor of 3,000."""
    costs: Costs | None = None
    """Of a missed positive and a false alarm, of a model with a positive class."""
    one_look: bool = False
    """The answers are those of a table, all there at once. Otherwise they come in, and people look again and again."""
    binning_of_positive: Binning = "mass"
    """Bins of p(positive). Of rare positives nearly all answers would lie in the first bin of equal width."""
