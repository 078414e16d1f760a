"""Fits of a calibrator by its name, and the selection of the best one on held-out rows."""

from trueodds.calibrators.selection.choosing import Candidate
from trueodds.calibrators.selection.selecting import (
    CANDIDATES,
    CURVES,
    SELECT,
    TOP_CURVES,
    Selection,
    check,
    default_candidates,
    default_words,
    fit,
    select,
)

__all__ = [
    "CANDIDATES",
    "CURVES",
    "SELECT",
    "TOP_CURVES",
    "Candidate",
    "Selection",
    "check",
    "default_candidates",
    "default_words",
    "fit",
    "select",
]
