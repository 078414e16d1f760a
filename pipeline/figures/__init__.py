"""Pictures of calibration: matplotlib, readable in grey, the same bytes on every run."""

from pipeline.figures.bins import bin_robustness
from pipeline.figures.calibrators import comparison
from pipeline.figures.classes import per_class
from pipeline.figures.evaluation import draw
from pipeline.figures.reliability import reliability_diagram

__all__ = ["bin_robustness", "comparison", "draw", "per_class", "reliability_diagram"]
