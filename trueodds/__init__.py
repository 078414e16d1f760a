"""TrueOdds: calibrated probabilities for classifiers. This package is the library, in numpy.

It needs only logits and labels. Here a model is over-confident by a factor of three. One number, fitted on half of the
rows, corrects this on the other half:

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

fit              fit a calibrator: by name, or the one with the least cross-validated NLL
logits_of        compute logits for a model that returns only probabilities
load             load a calibrator from its JSON file, or a bundle from its folder
report           report accuracy, ECE, NLL, Brier score and more, with intervals and the noise floor
threshold        find the lowest confidence from which answers may act alone, with a bound on their errors
table_sums       add up a table of any size: a DataFrame, an Arrow table, a DuckDB relation (extra `warehouse`)
compare          compare models on the same rows, in performance and in calibration
Calibrated       a scikit-learn estimator whose probabilities are calibrated by cross-fitting (extra `sklearn`)
calibrators      all calibrators; Calibrator is their base class
Calibrator       maps logits to probabilities; can be stored as JSON
metrics          all metrics, as functions of CalibrationSums or of probabilities and labels
CalibrationSums  the sums from which all metrics of the top class are computed; they add and subtract
Bundle           a model with its calibrator and its card, written by `trueodds export` and loaded by the service
Client           client of a running service: predictions, true labels, live report (extra `client`)
AsyncClient      the asynchronous client
UserError        base class of errors that state what was given, what is allowed and what to do
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trueodds.processes import privacy
from trueodds.processes.lazy import at_first_use
from trueodds.processes.version import __version__ as __version__

if TYPE_CHECKING:
    from trueodds import calibrators, metrics
    from trueodds.bundle import Bundle
    from trueodds.bundle.storage.loading import load
    from trueodds.calibrated import Calibrated
    from trueodds.calibrators import Calibrator, fit
    from trueodds.client import AsyncClient, Client
    from trueodds.errors import UserError
    from trueodds.metrics.decisions.acting import threshold
    from trueodds.reports.table.comparison.models import compare
    from trueodds.reports.table.evaluation import report
    from trueodds.reports.warehouse.table_objects import table_sums
    from trueodds.sums.rounding import logits_of
    from trueodds.sums.sums import CalibrationSums
else:
    __getattr__ = at_first_use(
        __name__,
        {
            "trueodds": "calibrators metrics",
            "trueodds.bundle": "Bundle",
            "trueodds.bundle.storage.loading": "load",
            "trueodds.calibrated": "Calibrated",
            "trueodds.calibrators": "Calibrator fit",
            "trueodds.client": "AsyncClient Client",
            "trueodds.errors": "UserError",
            "trueodds.metrics.decisions.acting": "threshold",
            "trueodds.reports.table.comparison.models": "compare",
            "trueodds.reports.table.evaluation": "report",
            "trueodds.reports.warehouse.table_objects": "table_sums",
            "trueodds.sums.rounding": "logits_of",
            "trueodds.sums.sums": "CalibrationSums",
        },
    )

    def __dir__() -> list[str]:
        """List the public names alone, for `dir` and tab completion."""
        return __all__


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
    "load",
    "logits_of",
    "metrics",
    "report",
    "table_sums",
    "threshold",
]

privacy.switch_off()  # before any module below imports a package that would report to its vendor
