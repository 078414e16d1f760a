"""Pictures of calibration: matplotlib, readable in grey, the same bytes on every run."""

from pipeline.report.bins import bin_robustness
from pipeline.report.calibrators import comparison
from pipeline.report.classes import per_class
from pipeline.report.reliability import reliability_diagram

__all__ = ["bin_robustness", "comparison", "per_class", "reliability_diagram"]
