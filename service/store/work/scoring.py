"""NLL and Brier score of labelled answers, from the stored logits and the calibrator of their version."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from service.store.label_rules import LabelChange
from service.store.rows import Integers, StoreDamagedError, Version
from trueodds.sums.inputs import Array
from trueodds.sums.losses import brier_of, nll_of, rounded_losses
from trueodds.sums.ordered import OrderedRows, ordered_rows
from trueodds.sums.rounding import EXACT, as_distributions

_EPS = float(np.finfo(np.float64).eps)
ZERO = 1.03 * _EPS
"""Largest stored probability of what was sent as 0."""
SCORED = 1 << 20
"""Number of probabilities computed at once: 8 MB."""


class Bounds(NamedTuple):
    """Limits of the NLL of L labels that rounding leaves."""

    least_L: Array
    """Lower bound of the NLL of a rounded answer; NaN for exact ones."""
    zero_L: npt.NDArray[np.bool_]
    """Whether the true class has probability 0."""

    @classmethod
    def none(cls, count: int) -> Bounds:
        return cls(np.full(count, np.nan), np.zeros(count, bool))


@dataclass(frozen=True, eq=False)
class ScoredChanges:
    """Changed labels of one version as arrays with L rows. before_L is -1 where there was no label."""

    changes: list[LabelChange]
    now_L: Integers
    before_L: Integers
    nll_L: Array
    brier_L: Array
    nll_before_L: Array
    brier_before_L: Array
    bounds: Bounds
    bounds_before: Bounds
    levels: tuple[OrderedRows, OrderedRows] | None = None
    """Numbers of the new and of the old labels, for ordered classes. Without an old label they mean nothing."""

    @cached_property
    def fresh_L(self) -> npt.NDArray[np.bool_]:
        return self.before_L < 0

    @cached_property
    def columns(self) -> tuple[Integers, Array, Integers, Integers]:
        """Times, confidences, predicted classes and keys of the tags of the answers."""
        candidates, names = [c.candidate for c in self.changes], ("created_ms", "confidence", "predicted", "tag_key")
        created_L, confidence_L, predicted_L, tag_L = (np.array([getattr(c, n) for c in candidates]) for n in names)
        return created_L, confidence_L, predicted_L, tag_L


def score(changes: list[LabelChange], version: Version) -> ScoredChanges:
    """Compute NLL (in nats) and Brier score of the new labels, and of the old ones where there were any.

    The probabilities are the version's calibrator applied to the stored logits, block by block. The scores are NaN if
    the version has no logits. Rounded answers are read by `rounded_losses`; `as_sent` finds them.
    """
    now_L = np.array([change.now for change in changes], np.int64)
    before_L = np.array([-1 if (label := c.candidate.label) is None else label for c in changes], np.int64)
    scores_4L = np.full((4, len(changes)), np.nan)
    bounds = [Bounds.none(len(changes)), Bounds.none(len(changes))]
    if not version.has_logits:
        return _collect_scores(changes, now_L, before_L, scores_4L, bounds)
    step, levels = max(SCORED // len(version.classes), 1), list[tuple[OrderedRows, OrderedRows]]()
    for start in range(0, len(changes), step):
        rows = slice(start, start + step)
        blobs = [change.candidate.logits for change in changes[rows]]
        logits_NC = logits_of(blobs, len(version.classes))
        probabilities_NC = version.calibrator(logits_NC, groups=[change.candidate.tag for change in changes[rows]])
        confidence_N = np.array([change.candidate.confidence for change in changes[rows]])
        sent_NC, rounded_N = as_sent(logits_NC, confidence_N, version)
        resolution = version.resolution or EXACT
        if resolution.step is not None:
            probabilities_NC[rounded_N] = as_distributions(sent_NC[rounded_N], resolution.step)
        squares_N, row_N = np.vecdot(probabilities_NC, probabilities_NC), np.arange(len(probabilities_NC))
        for k, label_L in enumerate((now_L, before_L)):
            true_N = probabilities_NC[row_N, label_L[rows]]
            scores_4L[2 * k, rows] = nll_of(true_N)
            scores_4L[2 * k + 1, rows] = brier_of(true_N, squares_N)
            if version.is_observed:
                bounds[k].zero_L[rows] = sent_NC[row_N, label_L[rows]] <= ZERO
            if resolution.step is not None:
                n = start + np.flatnonzero(rounded_N)
                losses = rounded_losses(sent_NC[rounded_N], label_L[n], resolution.step)
                scores_4L[2 * k, n] = losses.nll_N if resolution.has_nll else np.nan
                scores_4L[2 * k + 1, n], bounds[k].least_L[n] = losses.brier_N, losses.least_N
        if version.ordered:
            now, before = (ordered_rows(probabilities_NC, label_L[rows]) for label_L in (now_L, before_L))
            levels.append((now, before))
    scores = _collect_scores(changes, now_L, before_L, scores_4L, bounds)
    if not levels:
        return scores
    now, before = (OrderedRows.join([pair[k] for pair in levels]) for k in (0, 1))
    return replace(scores, levels=(now, before))


def _collect_scores(
    changes: list[LabelChange], now_L: Integers, before_L: Integers, scores_4L: Array, bounds: list[Bounds]
) -> ScoredChanges:
    nll_L, brier_L, nll_before_L, brier_before_L = scores_4L
    return ScoredChanges(changes, now_L, before_L, nll_L, brier_L, nll_before_L, brier_before_L, bounds[0], bounds[1])


def as_sent(
    logits_NC: npt.NDArray[np.float32], confidence_N: Array, version: Version
) -> tuple[Array, npt.NDArray[np.bool_]]:
    """Return probabilities as another server sent them, and which rows are rounded to the version's step.

    The stored confidence is the largest probability as it was sent, and logits are relative to it. A 0 was stored as
    2.2e-16. Values between the steps were not sent as rounded probabilities: they are votes, or logits.
    """
    wide_NC: Array = np.exp(logits_NC.astype(np.float64))
    step = version.resolution.step if version.is_observed and version.resolution is not None else None
    if step is None:
        return confidence_N[:, None] * wide_NC, np.zeros(len(wide_NC), bool)
    top_N = np.where(confidence_N >= 1 - step / 3, 1.0, confidence_N)  # a 1 is kept as 1 - s/4
    sent_NC = top_N[:, None] * wide_NC
    grid_NC = np.rint(sent_NC / step) * step
    as_zero_NC = np.abs(sent_NC / _EPS - 1) < 1e-3
    on_NC = np.where(grid_NC > 0, np.abs(sent_NC - grid_NC) <= min(1e-5, step / 20), as_zero_NC)
    rounded_N: npt.NDArray[np.bool_] = np.logical_and.reduce(on_NC, axis=1)
    return np.where(rounded_N[:, None], grid_NC, sent_NC), rounded_N


def as_read(logits_NC: npt.NDArray[np.float32], confidence_N: Array, version: Version) -> npt.NDArray[np.float32]:
    """Return stored logits, where those of rounded answers are the logarithms of how `as_distributions` reads them."""
    sent_NC, rounded_N = as_sent(logits_NC, confidence_N, version)
    if not rounded_N.any():
        return logits_NC
    assert version.resolution is not None and version.resolution.step is not None
    read_NC = np.log(as_distributions(sent_NC[rounded_N], version.resolution.step))
    logits_NC = logits_NC.copy()
    logits_NC[rounded_N] = read_NC - read_NC.max(axis=1, keepdims=True)
    return logits_NC


def logits_of(blobs: Sequence[bytes], classes: int) -> npt.NDArray[np.float32]:
    """Convert stored logits to an array with one row each.

    Raises:
        StoreDamagedError: A blob has another length, or is not a row minus its maximum.
    """
    if any(len(blob) != 4 * classes for blob in blobs):
        raise StoreDamagedError(f"the logits of a row of its table predictions are not {classes} numbers")
    logits_NC = np.frombuffer(b"".join(blobs), "<f4").reshape(-1, classes)
    if not (logits_NC.max(axis=1) == 0).all():  # this also finds a NaN
        raise StoreDamagedError("the logits of a row of its table predictions are not a row minus its maximum")
    return logits_NC
