"""TrueOdds: classifiers whose probabilities mean what they say. This package is the library, in numpy.

Logits and labels are all it needs. Here a model is three times too sure, which one number, fitted on half of the rows,
mends on the other half:

>>> import numpy as np, trueodds
>>> rng = np.random.default_rng(0)
>>> logits_NC = rng.normal(0, 6, (4_000, 3))
>>> true_NC = trueodds.calibrators.Temperature(3.0)(logits_NC)
>>> labels_N = (true_NC.cumsum(axis=1) > rng.random((4_000, 1))).argmax(axis=1)
>>> calibrator = trueodds.fit("temperature", logits_NC[:2_000], labels_N[:2_000])
>>> round(calibrator.temperature, 1)
3.0
>>> sure, calibrated = (c(logits_NC[2_000:]) for c in (trueodds.calibrators.Identity(), calibrator))
>>> for probabilities_NC in (sure, calibrated):
...     sums = trueodds.CalibrationSums.from_probabilities(probabilities_NC, labels_N[2_000:])
...     print(f"ECE {trueodds.metrics.ece(sums):.3f}, accuracy {trueodds.metrics.accuracy(sums):.3f}")
ECE 0.154, accuracy 0.751
ECE 0.021, accuracy 0.751

metrics          every metric, as a function of CalibrationSums or of probabilities and labels
CalibrationSums  all that a metric of the top class reads; sums add and subtract
calibrators      every calibrator; Calibrator is their base
fit, select      a calibrator by name; the one of least cross-validated NLL
Bundle           a model with its calibrator and its card, as `trueodds export` writes it and the service loads it
UserError        the base of all errors that name what was given, what is allowed, and the cure
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from trueodds import privacy

if TYPE_CHECKING:
    from trueodds import calibrators, metrics
    from trueodds.bundle import Bundle
    from trueodds.calibrators import Calibrator, fit, select
    from trueodds.errors import UserError
    from trueodds.sums.sums import CalibrationSums

__all__ = ["Bundle", "CalibrationSums", "Calibrator", "UserError", "calibrators", "fit", "metrics", "select"]

privacy.switch_off()  # before any module below imports what would report

_HOMES = {
    "Bundle": "trueodds.bundle",
    "CalibrationSums": "trueodds.sums.sums",
    "Calibrator": "trueodds.calibrators",
    "UserError": "trueodds.errors",
    "fit": "trueodds.calibrators",
    "select": "trueodds.calibrators",
}

if not TYPE_CHECKING:  # a type checker would take any name for public

    def __getattr__(name: str) -> object:
        """Imports a public name when it is first used: each command imports this package, and most need no scipy."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        home = _HOMES.get(name)
        value = getattr(import_module(home), name) if home else import_module(f"{__name__}.{name}")
        return globals().setdefault(name, value)
