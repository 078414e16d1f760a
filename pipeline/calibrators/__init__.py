"""Post-hoc calibrators: `fit(name, logits_NC, labels_N)` -> object; `object(logits_NC)` -> probabilities; JSON."""

from pipeline.calibrators.affine import BiasCorrectedTemperature, Matrix, Vector
from pipeline.calibrators.base import Calibrator, FitError
from pipeline.calibrators.bbq import BBQ
from pipeline.calibrators.dirichlet import Dirichlet
from pipeline.calibrators.ensemble import EnsembleTemperature
from pipeline.calibrators.histogram import Histogram
from pipeline.calibrators.identity import Identity
from pipeline.calibrators.isotonic import Isotonic
from pipeline.calibrators.registry import fit, from_json, get, names, options
from pipeline.calibrators.selection import Candidate, Selection, select
from pipeline.calibrators.sigmoid import Beta, Platt
from pipeline.calibrators.spline import Spline
from pipeline.calibrators.structured import StructuredMatrix, StructuredVector
from pipeline.calibrators.temperature import Temperature

__all__ = [
    "BBQ",
    "Beta",
    "BiasCorrectedTemperature",
    "Calibrator",
    "Candidate",
    "Dirichlet",
    "EnsembleTemperature",
    "FitError",
    "Histogram",
    "Identity",
    "Isotonic",
    "Matrix",
    "Platt",
    "Selection",
    "Spline",
    "StructuredMatrix",
    "StructuredVector",
    "Temperature",
    "Vector",
    "fit",
    "from_json",
    "get",
    "names",
    "options",
    "select",
]
