"""Conformal prediction sets: sets of classes that hold the true one with a stated probability.

>>> import numpy as np, trueodds
>>> from trueodds.calibrators import conformal
>>> rng = np.random.default_rng(0)
>>> p_NC = trueodds.metrics.softmax(rng.normal(0, 2, (4_000, 5)))
>>> labels_N = (p_NC.cumsum(axis=1) > rng.random((4_000, 1))).argmax(axis=1)
>>> sets = conformal.fit(p_NC[:2_000], labels_N[:2_000], "lac")
>>> inside_NC = sets.at(0.9).sets(p_NC[2_000:])
>>> print(f"{inside_NC[np.arange(2_000), labels_N[2_000:]].mean():.2f}")
0.91

The rows must be other rows than those that fitted the model or its calibrator.
"""

from __future__ import annotations

from trueodds.calibrators.conformal.fitting import (
    ApartRows,
    check_settings,
    digest_of,
    few_rows_notes,
    fit,
    fit_sets,
    rows_apart,
    split_rows,
)
from trueodds.calibrators.conformal.live_sets import LiveSets
from trueodds.calibrators.conformal.measuring import MeasuredSets, measure
from trueodds.calibrators.conformal.nonconformity import draws_of, scores_of
from trueodds.calibrators.conformal.ranks import MOST_ROWS, coverage_floor, rank_of
from trueodds.calibrators.conformal.rule import SetRule
from trueodds.calibrators.conformal.sets import ConformalSets
from trueodds.calibrators.conformal.settings import SetSettings
from trueodds.processes.choices import SET_METHODS

__all__ = [
    "MOST_ROWS",
    "SET_METHODS",
    "ApartRows",
    "ConformalSets",
    "LiveSets",
    "MeasuredSets",
    "SetRule",
    "SetSettings",
    "check_settings",
    "coverage_floor",
    "digest_of",
    "draws_of",
    "few_rows_notes",
    "fit",
    "fit_sets",
    "measure",
    "rank_of",
    "rows_apart",
    "scores_of",
    "split_rows",
]
