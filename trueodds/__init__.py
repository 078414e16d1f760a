"""TrueOdds: classifiers whose probabilities mean what they say. This package is the library, in numpy.

Logits and labels are all it needs. Here a model is three times too sure, which one number, fitted on half of the rows,
mends on the other half:

>>> import numpy as np, trueodds
>>> rng = np.random.default_rng(0)
>>> logits_NC = rng.normal(0, 6, (4_000, 3))
>>> true_NC = trueodds.calibrators.Temperature(3.0)(logits_NC)
>>> labels_N = (true_NC.cumsum(axis=1) > rng.random((4_000, 1))).argmax(axis=1)
>>> calibrator = trueodds.fit(logits_NC[:2_000], labels_N[:2_000], "temperature")
>>> round(calibrator.temperature, 1)
3.0
>>> before = trueodds.report(trueodds.metrics.softmax(logits_NC[2_000:]), labels_N[2_000:])
>>> after = trueodds.report(calibrator(logits_NC[2_000:]), labels_N[2_000:])
>>> print(f"ECE {before.ece:.3f} -> {after.ece:.3f}; a calibrated model shows up to {after.floor_p95:.3f}")
ECE 0.154 -> 0.021; a calibrated model shows up to 0.031

fit              the calibrator for some logits and labels: by name, or the one of least cross-validated NLL
logits_of        logits for a model that gives probabilities only
report           accuracy, ECE, NLL, Brier score and more, with intervals and the noise floor, to print or show
threshold        the lowest confidence from which on answers may act alone, with a bound on their errors
compare          models on the same rows: which is better, and which is better calibrated
Calibrated       a scikit-learn estimator whose probabilities are calibrated by cross-fitting (extra `sklearn`)
calibrators      every calibrator; Calibrator is their base
Calibrator       logits in, probabilities out, JSON both ways
metrics          every metric, as a function of CalibrationSums or of probabilities and labels
CalibrationSums  all that a metric of the top class reads; sums add and subtract
Bundle           a model with its calibrator and its card, as `trueodds export` writes it and the service loads it
Client           a running service: predictions, their true labels, the live report (extra `client`)
AsyncClient      the same, to be awaited
UserError        the base of all errors that name what was given, what is allowed, and the cure
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from trueodds.processes import privacy

if TYPE_CHECKING:
    from trueodds import calibrators, metrics
    from trueodds.bundle import Bundle
    from trueodds.calibrated import Calibrated
    from trueodds.calibrators import Calibrator, fit
    from trueodds.client import AsyncClient, Client
    from trueodds.errors import UserError
    from trueodds.metrics.decisions.acting import threshold
    from trueodds.reports.table.comparing import compare
    from trueodds.reports.table.evaluation import report
    from trueodds.sums.inputs import logits_of
    from trueodds.sums.sums import CalibrationSums

__version__ = "0.1.0"
"""The one place for the version: packages, images, manifests and pages take it from here."""

__all__ = [
    "AsyncClient",
    "Bundle",
    "Calibrated",
    "CalibrationSums",
    "Calibrator",
    "Client",
    "UserError",
    "calibrators",
    "compare",
    "fit",
    "logits_of",
    "metrics",
    "report",
    "threshold",
]

privacy.switch_off()  # before any module below imports what would report

_HOMES = {
    "AsyncClient": "trueodds.client",
    "Bundle": "trueodds.bundle",
    "Calibrated": "trueodds.calibrated",
    "CalibrationSums": "trueodds.sums.sums",
    "Calibrator": "trueodds.calibrators",
    "Client": "trueodds.client",
    "UserError": "trueodds.errors",
    "compare": "trueodds.reports.table.comparing",
    "fit": "trueodds.calibrators",
    "logits_of": "trueodds.sums.inputs",
    "report": "trueodds.reports.table.evaluation",
    "threshold": "trueodds.metrics.decisions.acting",
}

if not TYPE_CHECKING:  # a type checker would take any name for public

    def __getattr__(name: str) -> object:
        """Imports a public name when it is first used: each command imports this package, and most need no scipy."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        home = _HOMES.get(name)
        value = getattr(import_module(home), name) if home else import_module(f"{__name__}.{name}")
        return globals().setdefault(name, value)

    def __dir__() -> list[str]:
        """List the public names alone, for `dir` and tab completion."""
        return __all__
