"""Names of columns in words, with their units and possible values."""

from __future__ import annotations

import math

_WORDS = {
    "ece": "ECE", "nll": "NLL", "mce": "MCE", "sece": "SECE", "ks": "Kolmogorov-Smirnov", "kde": "kernel",
    "val": "validation", "train": "training", "l2": "(l2 norm)", "brier": "Brier score", "phi": "improvement of the",
    "p": "probability of the true class", "right": "of right rows", "wrong": "of wrong rows", "q05": "(5% quantile)",
    "q95": "(95% quantile)", "top": "top-label", "gamma": "γ", "rate": "",
}  # fmt: skip
_WHOLE = {"learning_rate": "learning rate"}
_FRACTIONS = {"ece", "mce", "sece", "ks", "error", "accuracy", "confidence", "p"}
_NATS = {"nll", "entropy"}
_SQUARED = "squared"
_SIGNED = {"phi", "debiased", "estimate", _SQUARED}
"""Parts in the names of improvements and unbiased estimates, which may be below 0."""


def name(column: str) -> str:
    """Return a column's name in words, such as "validation error" for `val_error_rate`."""
    return _WHOLE.get(column) or " ".join(filter(None, (_WORDS.get(part, part) for part in column.split("_"))))


def label(column: str) -> str:
    """Return a column's name with its unit, such as "validation error (fraction)" for `val_error_rate`."""
    parts = column.split("_")
    if _SQUARED in parts:
        return f"{name(column)} (squared fraction)"
    unit = " (nats)" if _NATS & {*parts} else " (fraction)" if _FRACTIONS & {*parts} else ""
    return name(column) + unit


def limits(column: str) -> tuple[float, float]:
    """Return the smallest and largest possible value of a column."""
    parts = {*column.split("_")}
    if parts & _SIGNED:
        return -math.inf, math.inf
    if parts & _FRACTIONS:
        return 0.0, 1.0
    return (0.0, math.inf) if parts & {*_NATS, "brier", "temperature", "norm"} else (-math.inf, math.inf)
