"""Post-hoc calibrators: fit one on validation logits, then call it on other logits to get calibrated probabilities.

`fit(logits_NC, labels_N, method)` returns a calibrator; `calibrator(logits_NC)` returns probabilities. A calibrator can
be stored as JSON. The examples assume `import numpy as np` and `from trueodds import calibrators, metrics`.

>>> calibrators.Temperature(2.0)([[2.0, 0.0]]).round(3)
array([[0.731, 0.269]])
"""

from trueodds.calibrators.affine.dirichlet import Dirichlet
from trueodds.calibrators.affine.group_temperature import GroupTemperature
from trueodds.calibrators.affine.label_platt import MultilabelPlatt
from trueodds.calibrators.affine.maps import BiasCorrectedTemperature, Matrix, Vector
from trueodds.calibrators.affine.structured import StructuredMatrix, StructuredVector
from trueodds.calibrators.base import Calibrator, FitError
from trueodds.calibrators.curve import StructuredCurve, TemperatureCurve
from trueodds.calibrators.ensemble import EnsembleTemperature
from trueodds.calibrators.fitting.prior_corrected import PriorCorrected
from trueodds.calibrators.fitting.rounded import Rounded
from trueodds.calibrators.histogram import BBQ, Histogram
from trueodds.calibrators.identity import Identity
from trueodds.calibrators.isotonic import Isotonic
from trueodds.calibrators.ordered_temperature import OrderedTemperature
from trueodds.calibrators.registry import from_json, get, names, options, origin
from trueodds.calibrators.selection import SELECT, Candidate, Selection, check, fit, select
from trueodds.calibrators.sigmoid import Beta, Platt, Quadratic
from trueodds.calibrators.spline import Spline
from trueodds.calibrators.temperature import Temperature
from trueodds.calibrators.venn_abers import VennAbers

__all__ = [
    "BBQ",
    "Beta",
    "BiasCorrectedTemperature",
    "Calibrator",
    "Candidate",
    "Dirichlet",
    "EnsembleTemperature",
    "FitError",
    "GroupTemperature",
    "Histogram",
    "Identity",
    "Isotonic",
    "Matrix",
    "MultilabelPlatt",
    "OrderedTemperature",
    "Platt",
    "PriorCorrected",
    "Quadratic",
    "Rounded",
    "SELECT",
    "Selection",
    "Spline",
    "StructuredCurve",
    "StructuredMatrix",
    "StructuredVector",
    "Temperature",
    "TemperatureCurve",
    "Vector",
    "VennAbers",
    "check",
    "fit",
    "from_json",
    "get",
    "names",
    "options",
    "origin",
    "select",
]
