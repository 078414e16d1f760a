"""Pictures of calibration: matplotlib, readable in grey, the same bytes on every run."""

from pipeline.figures.bins import bin_robustness
from pipeline.figures.calibrators import comparison
from pipeline.figures.classes import per_class
from pipeline.figures.reliability import reliability_diagram

__all__ = ["bin_robustness", "comparison", "per_class", "reliability_diagram"]
